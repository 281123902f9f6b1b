// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints on the disk: which there are after a training, that nothing destroys a good one, and the one
// line that each damaged or foreign one gets.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include "saved_training.hpp"
#include "small_files.hpp"
#include "trainer/base/durable.hpp"
#include "trainer/base/sha256.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
}

// ---- which there are

TEST(Checkpoints, AreWrittenAtTheIntervalAndAtTheEndAndTheNewestStay) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 25;
    settings.checkpoints.every = 10;
    const auto ranks = train_saved(2, settings);
    std::vector<std::int64_t> steps;
    for (const auto& one : ranks[0].seen.checkpoints) {
        steps.push_back(one.step);
        EXPECT_FALSE(one.problem);
        EXPECT_GT(one.seconds, 0);
    }
    EXPECT_THAT(steps, ElementsAre(10, 20, 25));
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000020", "step-000000025"));
    EXPECT_THAT(names_in(directory.path() / "step-000000025"),
                ElementsAre("DONE", "manifest.json", "rank-00000-of-00002.f32", "rank-00001-of-00002.f32"));
    EXPECT_EQ(ranks[1].outcome->checkpoints, 3);
    EXPECT_THAT(ranks[1].seen.phases, Contains(Phase::checkpoint));
}

TEST(Checkpoints, AsManyStayAsAreKept) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 5;
    settings.checkpoints.every = 1;
    settings.checkpoints.keep = 3;
    train_saved(1, settings);
    EXPECT_THAT(names_in(directory.path()),
                ElementsAre("step-000000003", "step-000000004", "step-000000005"));
}

// So that what a full disk has stopped can go on.
TEST(Checkpoints, FewerStayFromTheBeginningWhereFewerAreKept) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 4;
    settings.checkpoints.every = 2;
    train_saved(1, settings);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000002", "step-000000004"));
    settings.checkpoints.keep = 1;
    train_saved(1, settings);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000004"));
}

TEST(Checkpoints, AreNotThereWhereNobodyAsksForThem) {
    Settings settings = saved_settings({});
    settings.max_steps = 5;
    settings.checkpoints.every = 1;
    const auto ranks = train_saved(1, settings);
    EXPECT_TRUE(ranks[0].outcome);
    EXPECT_THAT(ranks[0].seen.checkpoints, IsEmpty());
}

TEST(Checkpoints, CountOnlyWhereTheyAreMarked) {
    const Scratch directory;
    for (const char* name : {"step-000000007", "step-000000011", "step-12", "step-000000013x", "other",
                             ".step-000000014.unfinished", "step-1000000000"}) {
        fs::create_directory(directory.path() / name);
        write(directory.path() / name / "DONE", "");
    }
    fs::create_directory(directory.path() / "step-000000015");
    EXPECT_THAT(checkpoints_in(directory.path()), ElementsAre(1'000'000'000, 11, 7));
    EXPECT_THAT(checkpoints_in(directory.path() / "nowhere"), IsEmpty());
    keep_newest(directory.path(), 2);
    EXPECT_THAT(checkpoints_in(directory.path()), ElementsAre(1'000'000'000, 11));
    EXPECT_FALSE(fs::exists(directory.path() / "step-000000007"));
    EXPECT_TRUE(fs::exists(directory.path() / "other"));
}

// ---- what breaks off

TEST(Checkpoints, WhatADeadTrainingLeftUnfinishedIsPassedOverAndGoesAway) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 10;
    train_saved(2, settings);
    const fs::path unfinished = unfinished_path(directory.path(), 20);
    const fs::path unmarked = checkpoint_path(directory.path(), 30);
    fs::create_directory(unfinished);
    write(unfinished / shard_name(0, 2), "half");
    fs::create_directory(unmarked);
    write(unmarked / "manifest.json", "{");
    write(presence_file(directory.path(), 1), "");
    settings.max_steps = 30;
    const auto ranks = train_saved(2, settings);
    EXPECT_EQ(ranks[0].seen.resumed, 10);
    EXPECT_THAT(names_in(directory.path()),
                ElementsAre("step-000000010", "step-000000030", "step-000000030.damaged"));
    EXPECT_THAT(checkpoints_in(directory.path()), ElementsAre(30, 10));
    EXPECT_THAT(
        ranks[0].seen.damaged,
        UnorderedElementsAre(
            "removed " + unfinished.string() + ", which an interrupted training left",
            "the checkpoint " + unmarked.string() + " has no DONE; it is kept as step-000000030.damaged"));
    EXPECT_THAT(ranks[1].seen.damaged, IsEmpty());
}

// The parent kills the child while that removes a checkpoint of many files.
TEST(Checkpoints, OneThatWasBeingRemovedWhenItsTrainingWasKilledGoesAway) {
    const Scratch directory;
    const fs::path old = checkpoint_path(directory.path(), 1);
    for (const std::int64_t step : {1, 2}) {
        fs::create_directory(checkpoint_path(directory.path(), step));
        write(checkpoint_path(directory.path(), step) / "DONE", "");
    }
    for (int i = 0; i < 4000; ++i) write(old / std::to_string(i), "");
    const pid_t child = fork();
    if (child == 0) {
        keep_newest(directory.path(), 1);
        std::_Exit(0);
    }
    while (fs::exists(old / "DONE")) continue;
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    tidy(directory.path());
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000002"));
}

// Whatever it is: an older trainer removed the marker first, but a copy may also have lost it.
TEST(Checkpoints, WhatHasTheNameOfOneAndNoMarkerIsKept) {
    const Scratch directory;
    write(checkpoint_path(directory.path(), 2), "a file");
    for (const char* name : {"step-000000001", "step-by-step", ".step-1.unfinished", ".step-x.unfinished",
                             ".rank-7.here", ".rank-notes"})
        fs::create_directory(directory.path() / name);
    write(checkpoint_path(directory.path(), 1) / "rank-00000-of-00001.f32", "numbers");
    EXPECT_THAT(tidy(directory.path()), ElementsAre(HasSubstr("step-000000001 has no DONE; it is kept as "
                                                              "step-000000001.damaged")));
    EXPECT_THAT(
        names_in(directory.path()),
        UnorderedElementsAre("step-000000001.damaged", "step-000000002", "step-by-step", ".step-1.unfinished",
                             ".step-x.unfinished", ".rank-7.here", ".rank-notes"));
    EXPECT_EQ(read(directory.path() / "step-000000001.damaged" / "rank-00000-of-00001.f32"), "numbers");
    EXPECT_THAT(tidy(directory.path()), IsEmpty());
}

// Of both ranks and both vectors; the training goes on before they are whole.
TEST(Checkpoints, WrittenInTheBackgroundHaveTheSameBytes) {
    const Scratch at_once, background;
    std::vector<std::vector<RankOf>> ranks;
    for (const Scratch* directory : {&at_once, &background}) {
        Settings settings = saved_settings(directory->path());
        settings.max_steps = 25;
        settings.checkpoints.every = 10;
        settings.checkpoints.keep = 3;
        settings.checkpoints.is_async = directory == &background;
        ranks.push_back(train_saved(2, settings));
    }
    EXPECT_EQ(outcome_of(ranks[0]).parameters_hash, outcome_of(ranks[1]).parameters_hash);
    EXPECT_EQ(ranks[1][0].outcome->checkpoints, 3);
    const auto& written = ranks[1][0].seen.checkpoints;
    ASSERT_EQ(written.size(), 3u);
    for (const auto& one : written) EXPECT_FALSE(one.problem);
    EXPECT_GT(written[0].seconds, *written[0].held);
    EXPECT_EQ(written[1].step, 20);
    EXPECT_FALSE(written[2].held) << "the last one is waited for";
    EXPECT_THAT(ranks[1][0].seen.steps_at_checkpoints, ElementsAre(Gt(10), Gt(20), 25));
    const std::vector<std::string> names{"step-000000010", "step-000000020", "step-000000025"};
    EXPECT_EQ(names_in(at_once.path()), names);
    EXPECT_EQ(names_in(background.path()), names);
    for (const auto& name : names)
        for (const auto& file : names_in(at_once.path() / name))
            EXPECT_EQ(read(background.path() / name / file), read(at_once.path() / name / file))
                << name << file;
}

// The next one begins, and a signal comes, before it is known that the one before is whole.
TEST(Checkpoints, WrittenInTheBackgroundAreAllThereWhenItIsStopped) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.every = 1;
    settings.checkpoints.keep = 100;
    settings.checkpoints.is_async = true;
    const auto ranks = train_saved(2, settings, 20);
    const Error error = the_error(ranks);
    EXPECT_EQ(error.fault, Fault::stopped);
    const std::int64_t last = ranks[0].seen.last_step;
    EXPECT_EQ(names_in(directory.path()).size(), static_cast<std::size_t>(last));
    EXPECT_THAT(error.message, HasSubstr(names_in(directory.path()).back()));
    EXPECT_EQ(train_saved(2, settings)[0].seen.resumed, last);
}

class WrittenCheckpoints : public ::testing::TestWithParam<bool> {};  // in the background?
INSTANTIATE_TEST_SUITE_P(AtOnceOrInTheBackground, WrittenCheckpoints, ::testing::Bool());

TEST_P(WrittenCheckpoints, AFullDiskCostsTheNewOneAlone) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.is_async = GetParam();
    settings.max_steps = 10;
    train_saved(2, settings);
    settings.checkpoints.every = 15;
    settings.max_steps = 40;
    {
        const SmallFiles full(100'000);
        const auto ranks = train_saved(2, settings);
        for (const auto& rank : ranks) {
            ASSERT_TRUE(rank.outcome) << rank.outcome.error().message;
            EXPECT_EQ(rank.outcome->resumed, 10);
            EXPECT_EQ(rank.outcome->checkpoints, 0);
            EXPECT_FALSE(rank.outcome->end_is_saved);
            ASSERT_EQ(rank.seen.checkpoints.size(), 3u);  // 15, 30, 40
            for (const auto& one : rank.seen.checkpoints) EXPECT_TRUE(one.problem);
        }
        EXPECT_THAT(*ranks[0].seen.checkpoints[0].problem,
                    AllOf(HasSubstr("rank-00000-of-00002.f32: cannot write: "), HasSubstr("large")));
        EXPECT_EQ(ranks[1].seen.checkpoints[0].problem, "") << "one line is enough";
        EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000010"));
    }
    EXPECT_EQ(train_saved(2, settings)[0].seen.resumed, 10);
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000030", "step-000000040"));
}

TEST(Checkpoints, AStopThatCannotBeSavedSaysSo) {
    const Scratch directory;
    const SmallFiles full(100'000);
    const Error error = the_error(train_saved(2, saved_settings(directory.path()), 20));
    EXPECT_EQ(error.fault, Fault::checkpoint);
    EXPECT_THAT(error.message, HasSubstr("which could not be saved"));
}

void train_until_a_write_is_cut(const fs::path& directory, bool is_async) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 100'000;
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
    Settings settings = saved_settings(directory);
    settings.checkpoints.every = 1;
    settings.checkpoints.is_async = is_async;
    train_saved(1, settings);
    std::exit(1);
}

TEST_P(WrittenCheckpoints, AProcessThatDiesInTheMiddleOfAWriteLeavesTheLastGoodOne) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // The other process runs this test from its beginning, too, and must come to the same directory.
    const Scratch mine;
    setenv("DP_CHECKPOINT_TEST", mine.path().c_str(), 0);
    const fs::path directory = std::getenv("DP_CHECKPOINT_TEST");
    Settings settings = saved_settings(directory);
    settings.max_steps = 10;
    if (directory == mine.path()) train_saved(2, settings);
    settings.max_steps.reset();
    EXPECT_EXIT(train_until_a_write_is_cut(directory, GetParam()), ::testing::KilledBySignal(SIGXFSZ), "");
    unsetenv("DP_CHECKPOINT_TEST");
    EXPECT_THAT(names_in(directory), Contains(HasSubstr(".unfinished")));
    EXPECT_EQ(train_saved(2, settings)[0].seen.resumed, 10);
    EXPECT_THAT(names_in(directory), ElementsAre("step-000000010", "step-000000069"));
}

TEST_P(WrittenCheckpoints, AModelThatIsNoNumberIsNotSaved) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.is_async = GetParam();
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 1e30;
    settings.checkpoints.every = 5;
    const Error error = the_error(train_saved(2, settings));
    EXPECT_EQ(error.fault, Fault::training);
    EXPECT_THAT(error.message, HasSubstr("step 5: the loss or the model is NaN or infinite"));
    EXPECT_THAT(names_in(directory.path()), IsEmpty());
}

// The first update ruins the model, and every step after it is skipped: its loss stays that of the first.
TEST(Checkpoints, AModelThatIsNoNumberIsNotSavedWhereItsStepsAreSkipped) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.optimizer = Optimization::sgd;
    settings.rate.rate = 1e300;
    settings.skip_bad_steps = true;
    settings.checkpoints.every = 5;
    for (const bool saves : {true, false}) {
        if (!saves) settings.checkpoints = {};
        const auto outcomes = train_saved(2, settings);
        EXPECT_EQ(the_error(outcomes).fault, Fault::training);
        EXPECT_THAT(names_in(directory.path()), IsEmpty());
    }
}

// ---- damage: one line, exit code 2, no step made

struct Damage {
    const char* what;
    void (*act)(const fs::path& checkpoint);
    const char* line;
};

void change(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = read(file);
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(file, text.replace(at, from.size(), to));
}

// As a trainer would that wrote this.
void rewrite_manifest(const fs::path& checkpoint, const std::string& from, const std::string& to) {
    change(checkpoint / "manifest.json", from, to);
    const std::string text = read(checkpoint / "manifest.json");
    Sha256 sha;
    sha.update(text.data(), text.size());
    write(checkpoint / "DONE", hex_of(sha.digest()) + "\n");
}

const Damage kDamages[] = {
    {"a shard is missing", [](const fs::path& c) { fs::remove(c / "rank-00001-of-00002.f32"); },
     "lacks rank-00001-of-00002.f32; no older one is whole; remove it to begin anew"},
    {"a shard is cut", [](const fs::path& c) { fs::resize_file(c / "rank-00001-of-00002.f32", 1000); },
     "is damaged: rank-00001-of-00002.f32 has 1000 bytes instead of "},
    {"a shard is empty", [](const fs::path& c) { write(c / "rank-00000-of-00002.f32", ""); },
     "is damaged: rank-00000-of-00002.f32 has 0 bytes instead of "},
    {"one bit of a shard is another",
     [](const fs::path& c) {
         std::string bytes = read(c / "rank-00000-of-00002.f32");
         bytes[4711] = static_cast<char>(bytes[4711] ^ 1);
         write(c / "rank-00000-of-00002.f32", bytes);
     },
     "is damaged: the SHA-256 of rank-00000-of-00002.f32 is not the one in the manifest"},
    {"a shard is a pipe",
     [](const fs::path& c) {
         fs::remove(c / "rank-00000-of-00002.f32");
         mkfifo((c / "rank-00000-of-00002.f32").c_str(), 0600);
     },
     "has rank-00000-of-00002.f32, which cannot be read: it is a pipe, not a file"},
    {"the manifest is missing", [](const fs::path& c) { fs::remove(c / "manifest.json"); },
     "has no readable manifest.json; no older one is whole; remove it to begin anew"},
    {"the manifest is cut", [](const fs::path& c) { fs::resize_file(c / "manifest.json", 300); },
     "is damaged: the SHA-256 of manifest.json is not the one in DONE; no older one is whole; remove it"},
    {"the manifest says another epoch",
     [](const fs::path& c) { rewrite_manifest(c, "\"epoch\": 1", "\"epoch\": 2"); },
     "is damaged: epoch is 2, and step 10 is in epoch 1"},
    {"it is another one's copy",
     [](const fs::path& c) { rewrite_manifest(c, "\"step\": 10", "\"step\": 9"); }, "is damaged: "},
    {"the manifest was edited",
     [](const fs::path& c) { change(c / "manifest.json", "\"seed\": 1", "\"seed\": 2"); },
     "is damaged: the SHA-256 of manifest.json is not the one in DONE"},
    {"a newer trainer wrote it",
     [](const fs::path& c) { rewrite_manifest(c, "\"version\": 1", "\"version\": 3"); },
     "has version 3 of the format, and this trainer reads versions 1 to 2; take the trainer that wrote it, "
     "or a "
     "newer one"},
    {"a vector is missing",
     [](const fs::path& c) { rewrite_manifest(c, "\"name\": \"m\"", "\"name\": \"n\""); },
     "lacks m; it was written by another version"},
};

TEST(Checkpoints, DamagedOnesAreRefusedInOneLine) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 10;
    train_saved(2, settings);
    settings.max_steps = 20;
    const fs::path checkpoint = checkpoint_path(directory.path(), 10);
    const Scratch sound;
    fs::copy(checkpoint, sound.path(), fs::copy_options::recursive);
    for (const auto& damage : kDamages) {
        fs::remove_all(checkpoint);
        fs::copy(sound.path(), checkpoint, fs::copy_options::recursive);
        damage.act(checkpoint);
        // On fewer ranks than wrote it, on as many, and on more.
        for (const std::int64_t world : {1, 2, 4}) {
            const auto ranks = train_saved(world, settings);
            const Error error = the_error(ranks);
            EXPECT_EQ(error.fault, Fault::usage) << damage.what;
            EXPECT_THAT(error.message, AllOf(HasSubstr(checkpoint.string()), HasSubstr(damage.line)))
                << damage.what;
            EXPECT_EQ(error.message.find('\n'), std::string::npos);
            EXPECT_EQ(ranks[0].seen.steps, 0);
        }
        EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000010")) << "nothing half-written";
    }
}

struct GoneBack : ::testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, GoneBack, ::testing::ValuesIn(kDamages),
                         [](const auto& one) { return std::to_string(one.index); });

// The requeue loop goes on. On fewer ranks than wrote them, on as many, and on more.
TEST_P(GoneBack, ToTheNextWholeOne) {
    const Damage& damage = GetParam();
    for (const std::int64_t world : {1, 2, 4}) {
        const Scratch directory;
        Settings settings = saved_settings(directory.path());
        settings.checkpoints.every = 5;
        settings.checkpoints.keep = 3;
        settings.max_steps = 10;
        train_saved(2, settings);
        damage.act(checkpoint_path(directory.path(), 10));
        settings.max_steps = 12;
        const auto ranks = train_saved(world, settings);
        const bool is_damaged = std::string_view(damage.line).find("version") == std::string_view::npos;
        if (!is_damaged) {  // but another trainer's: whoever wrote it can still go on from it
            EXPECT_EQ(the_error(ranks).fault, Fault::usage) << damage.what;
            continue;
        }
        EXPECT_TRUE(outcome_of(ranks).end_is_saved) << damage.what;
        std::vector<std::string> told;
        for (const auto& rank : ranks) {
            EXPECT_EQ(rank.seen.resumed, 5) << damage.what;
            EXPECT_EQ(rank.seen.steps, 7) << damage.what;
            told.insert(told.end(), rank.seen.damaged.begin(), rank.seen.damaged.end());
        }
        ASSERT_EQ(told.size(), 1u) << damage.what;
        const std::string_view line = damage.line;
        EXPECT_THAT(told[0], AllOf(HasSubstr((directory / "step-000000010").string()),
                                   HasSubstr(std::string(line.substr(0, line.find(';')))),
                                   HasSubstr("; going back to step-000000005")));
        EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000005", "step-000000010",
                                                            "step-000000010.damaged", "step-000000012"));
        EXPECT_EQ(train_saved(world, settings)[0].seen.resumed, 12);
    }
}

TEST(Checkpoints, ThatAreAllDamagedAreAllNamed) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.every = 5;
    settings.max_steps = 10;
    train_saved(2, settings);
    for (const std::int64_t step : {5, 10})
        fs::resize_file(checkpoint_path(directory.path(), step) / shard_name(1, 2), 7);
    const auto ranks = train_saved(2, settings);
    const Error error = the_error(ranks);
    EXPECT_EQ(error.fault, Fault::usage);
    EXPECT_THAT(error.message, HasSubstr("step-000000005 is damaged: rank-00001-of-00002.f32 has 7 bytes"));
    EXPECT_THAT(error.message, HasSubstr("; none there is whole; remove them all to begin anew"));
    EXPECT_THAT(ranks[1].seen.damaged, ElementsAre(HasSubstr("step-000000010 is damaged: ")));
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000005", "step-000000010"));
}

// The directory is everybody's (as /tmp is), and the damaged one another user's, who alone may rename it. Its step is
// also that of the end, which so cannot be saved: then the whole one must still be there.
TEST(Checkpoints, OneThatIsDamagedAndCannotBeSetAsideCostsNoWholeOne) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, which may be another user for a moment";
    constexpr uid_t kNobody = 65534;
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.every = 5;
    settings.max_steps = 10;
    train_saved(2, settings);
    fs::resize_file(checkpoint_path(directory.path(), 10) / shard_name(1, 2), 7);
    ASSERT_EQ(chmod(directory.path().c_str(), 01777), 0);
    const fs::path whole = checkpoint_path(directory.path(), 5);
    ASSERT_EQ(chown(whole.c_str(), kNobody, kNobody), 0);
    for (const auto& file : fs::directory_iterator(whole))
        ASSERT_EQ(chown(file.path().c_str(), kNobody, kNobody), 0);
    settings.checkpoints.keep = 1;
    ASSERT_EQ(seteuid(kNobody), 0);
    const auto ranks = train_saved(2, settings);
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_EQ(ranks[0].seen.resumed, 5);
    EXPECT_FALSE(outcome_of(ranks).end_is_saved);
    EXPECT_THAT(ranks[0].seen.damaged,
                Contains(HasSubstr("step-000000010: cannot rename it to step-000000010.damaged: ")));
    EXPECT_THAT(checkpoints_in(directory.path()), ElementsAre(10, 5));
    keep_newest(directory.path(), 1, {10});
    EXPECT_THAT(checkpoints_in(directory.path()), ElementsAre(10, 5));
    keep_newest(directory.path(), 1);
    EXPECT_THAT(checkpoints_in(directory.path()), ElementsAre(10));
}

// ---- another training's

TEST(Checkpoints, OfAnotherTrainingAreRefusedInOneLine) {
    struct Case {
        void (*act)(Settings& settings, Dataset& data, const char*& model);
        const char* line;
    };
    const Case cases[] = {
        {[](Settings&, Dataset& data, const char*& model) {
             data = make_linear_regression();
             model = "linear";
         },
         "is of the model ffn; give --model=ffn; or begin anew in another --checkpoint-dir"},
        {[](Settings& s, Dataset&, const char*&) { s.optimizer = Optimization::sgd; },
         "was made with adam; give --optimizer=adam"},
        {[](Settings& s, Dataset&, const char*&) { s.seed = 2; }, "was made with the seed 1; give --seed=1"},
        {[](Settings&, Dataset& data, const char*&) { data.train = patterns(1500, 7); },
         "was made with other data: 1500 training samples from patterns"},
        {[](Settings& s, Dataset&, const char*&) { s.batch = 32; },
         "was made with a global batch of 64, and this run has one of 32 (ranks: 2, --batch-size: 16, "
         "--accumulate: 1); give --batch-size 32 --accumulate 1, or --batch-size 16 --accumulate 2"},
        {[](Settings& s, Dataset&, const char*&) { s.max_steps = 9; },
         "is of step 10, and this run ends at step 9; give more --epochs or --steps"},
        {[](Settings& s, Dataset&, const char*&) { s.checkpoints.resume = Resume::never; },
         "there are checkpoints, and --resume=never asks for none"},
    };
    const Scratch directory;
    Settings first = saved_settings(directory.path());
    first.max_steps = 10;
    train_saved(2, first);
    for (const auto& c : cases) {
        Settings settings = saved_settings(directory.path());
        Dataset data = pattern_set();
        const char* model = "ffn";
        c.act(settings, data, model);
        const auto ranks = train_saved(2, settings, {}, data, model);
        const Error error = the_error(ranks);
        EXPECT_EQ(error.fault, Fault::usage);
        EXPECT_THAT(error.message, HasSubstr(c.line));
        EXPECT_EQ(ranks[0].seen.steps, 0);
        EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000010"));
    }
}

TEST(Checkpoints, AreAskedForWithResumeMust) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.max_steps = 2;
    settings.checkpoints.resume = Resume::must;
    const Error error = the_error(train_saved(2, settings));
    EXPECT_EQ(error.fault, Fault::usage);
    EXPECT_THAT(error.message, HasSubstr("no checkpoint there, and --resume=must asks for one"));
    settings.checkpoints.resume = Resume::never;
    EXPECT_TRUE(train_saved(2, settings)[0].outcome);
    settings.checkpoints.resume = Resume::must;
    EXPECT_EQ(train_saved(2, settings)[0].seen.resumed, 2);
}

// ---- the directory

TEST(CheckpointDirectory, IsMadeWithItsParents) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path() / "a" / "b");
    settings.max_steps = 1;
    EXPECT_TRUE(train_saved(1, settings)[0].outcome);
    EXPECT_THAT(names_in(directory.path() / "a" / "b"), ElementsAre("step-000000001"));
}

// Permissions would not stop root; these do.
TEST(CheckpointDirectory, ThatCannotBeWrittenIsRefusedBeforeAnyStep) {
    const Scratch directory;
    write(directory.path() / "file", "");
    for (const fs::path& place : {directory.path() / "file", directory.path() / "file" / "x",
                                  fs::path("/proc/x"), fs::path("/proc/self")}) {
        const auto ranks = train_saved(2, saved_settings(place));
        const Error error = the_error(ranks);
        EXPECT_EQ(error.fault, Fault::usage) << place;
        EXPECT_THAT(error.message, AllOf(HasSubstr(place.string()), HasSubstr("cannot "))) << place;
        EXPECT_EQ(ranks[0].seen.steps, 0);
    }
}

TEST(CheckpointDirectory, OnAFullDiskIsLeftAsItWas) {
    const Scratch directory;
    const SmallFiles full(0);
    const auto ranks = train_saved(2, saved_settings(directory.path()));
    EXPECT_THAT(the_error(ranks).message, HasSubstr("cannot write: "));
    EXPECT_THAT(names_in(directory.path()), IsEmpty());
}

TEST(CheckpointDirectory, ThatNotAllRanksShareIsRefused) {
    const Scratch directory;
    for (const std::int64_t rank : {0, 1, 3}) write(presence_file(directory.path(), rank), "");
    EXPECT_TRUE(check_presence(directory.path(), 2));
    const auto one = check_presence(directory.path(), 4);
    ASSERT_FALSE(one);
    EXPECT_EQ(one.error().fault, Fault::usage);
    EXPECT_THAT(one.error().message, HasSubstr("rank 0 does not see what rank 2 writes there"));
    EXPECT_THAT(check_presence(directory.path(), 32).error().message,
                HasSubstr("rank 0 does not see what ranks 2, 4, 5, 6, 7, 8, 9, 10, … write there"));
}

}  // namespace
}  // namespace dp::trainer
