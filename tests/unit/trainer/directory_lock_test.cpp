// SPDX-License-Identifier: Apache-2.0
//
// Two trainings and one --checkpoint-dir: the second is refused where the file system has locks, and where it
// has none the first ends without touching what is the second's. The second is played by what it writes.
#include "trainer/checkpoint/directory_lock.hpp"

#include <gmock/gmock.h>

#include "saved_training.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Trains with a checkpoint each 10 steps; `then` is called between the first and the second.
std::vector<RankOf> train_until(const Scratch& directory, const std::function<void()>& then) {
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.every = 10;
    bool done = false;
    settings.checkpoints.stop_signal = [&] {
        if (!done && fs::exists(checkpoint_path(directory.path(), 10))) {
            done = true;
            then();
        }
        return 0;
    };
    return train_saved(1, settings);
}

TEST(DirectoryLock, RefusesASecondTrainingWhileTheFirstLives) {
    const Scratch directory;
    Settings settings = saved_settings(directory.path());
    settings.checkpoints.every = 10;
    Settings first = settings;
    std::optional<Error> second;
    first.checkpoints.stop_signal = [&] {
        if (!second && fs::exists(checkpoint_path(directory.path(), 10)))
            second = the_error(train_saved(1, settings));
        return 0;
    };
    outcome_of(train_saved(1, first));
    ASSERT_TRUE(second);
    EXPECT_EQ(second->fault, Fault::usage);
    EXPECT_THAT(second->message, AllOf(HasSubstr("another training "), HasSubstr("give another directory")));
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000060", "step-000000069"));
    // It is free again.
    EXPECT_EQ(outcome_of(train_saved(1, settings)).resumed, 69);
}

TEST(DirectoryLock, OfATrainingIsGivenUpWhereAnotherHasBegunThere) {
    const Scratch directory;
    const std::string theirs = "job 12, process 34 on node01, 0123456789abcdef\n";
    const auto ranks = train_until(directory, [&] {
        directory.write(kClaimFile, theirs);
        directory.write(unfinished_path({}, 20).string() + "/theirs", "a shard");
    });
    const Error error = the_error(ranks);
    EXPECT_EQ(error.fault, Fault::usage);
    EXPECT_THAT(error.message, AllOf(HasSubstr("another training (job 12, process 34 on node01) has taken "),
                                     HasSubstr("this one ends")));
    EXPECT_EQ(ranks[0].seen.last_step, 20);
    EXPECT_THAT(names_in(directory.path()),
                ElementsAre(unfinished_path({}, 20).string(), kClaimFile, "step-000000010"));
    EXPECT_EQ(contents_of(directory / kClaimFile), theirs);
    EXPECT_EQ(contents_of(directory / (unfinished_path({}, 20).string() + "/theirs")), "a shard");
}

// It wrote its own in between, and took it away at its end.
TEST(DirectoryLock, IsLostAlsoToATrainingThatIsOver) {
    const Scratch directory;
    const auto ranks = train_until(directory, [&] { fs::remove(directory / kClaimFile); });
    EXPECT_THAT(the_error(ranks).message, HasSubstr("another training has taken "));
}

TEST(DirectoryLock, ThatACrashLeftKeepsNobodyOut) {
    const Scratch directory;
    directory.write(kClaimFile, "process 1 on node02, 0123456789abcdef\n");
    outcome_of(train_saved(2, saved_settings(directory.path())));
    EXPECT_THAT(names_in(directory.path()), ElementsAre("step-000000069"));
}

// Its node stands still, and the step goes on without it.
TEST(DirectoryLock, OfAnEarlierGenerationOfTheStepIsTakenOver) {
    const Scratch directory;
    const auto make = [&](const char* step, bool succeeds) {
        setenv("SLURM_JOB_ID", "12", 1);
        setenv("SLURM_STEP_ID", step, 1);
        auto made = DirectoryLock::make(directory / "run", succeeds);
        unsetenv("SLURM_JOB_ID");
        unsetenv("SLURM_STEP_ID");
        return made;
    };
    const auto first = make("0", false);
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_FALSE(make("0", false)) << "of the same generation";
    EXPECT_FALSE(make("1", true)) << "of another step";
    EXPECT_FALSE(DirectoryLock::make(directory / "run", true)) << "of no step";
    EXPECT_TRUE((*first)->check());
    const auto next = make("0", true);
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_TRUE((*next)->check());
    const auto woken = (*first)->check();
    ASSERT_FALSE(woken);
    EXPECT_THAT(woken.error().message, HasSubstr("another training (job 12.0, process "));
}

// A full disk may have done that, or a person.
TEST(DirectoryLock, IsNotLostWithTheDirectory) {
    const Scratch directory;
    const auto claim = DirectoryLock::make(directory / "run");
    ASSERT_TRUE(claim) << claim.error().message;
    EXPECT_TRUE((*claim)->check());
    fs::remove_all(directory / "run");
    EXPECT_TRUE((*claim)->check());
}

// A mistyped --checkpoint-dir, say.
TEST(DirectoryLock, LeavesNoDirectoryThatItMadeForNothing) {
    const Scratch scratch;
    Settings settings = saved_settings(scratch / "a/b");
    settings.checkpoints.resume = Resume::must;
    for (const std::int64_t world : {1, 2}) {
        EXPECT_THAT(the_error(train_saved(world, settings)).message, HasSubstr("asks for one"));
        EXPECT_TRUE(fs::is_empty(scratch.path())) << world << " ranks";
    }
    settings.checkpoints.resume = Resume::automatic;
    outcome_of(train_saved(2, settings));
    EXPECT_THAT(names_in(scratch / "a/b"), ElementsAre("step-000000069"));
}

}  // namespace
}  // namespace dp::trainer
