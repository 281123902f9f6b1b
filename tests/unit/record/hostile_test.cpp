// SPDX-License-Identifier: Apache-2.0
//
// Cut, mixed, foreign and hostile records: what can be shown is shown, and what is missing is said.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "common/read_file.hpp"
#include "dpctl/report.hpp"
#include "record/node_file.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

using testing::Test;

class HostileRecordTest : public RecordTest {
 protected:
    std::string only_problem() const {
        const auto read = records();
        EXPECT_EQ(read.problems.size(), 1u);
        return read.problems.empty() ? "" : read.problems[0];
    }
    void foreign(const std::string& name, const std::string& bytes) const {
        std::ofstream(folder + "/" + name + std::string(kRecordSuffix), std::ios::binary) << bytes;
    }
    std::string why_not() const {
        const auto read = read_records({folder});
        EXPECT_FALSE(read);
        return read ? "" : read.error().message;
    }
};

TEST(RecordEntries, AreReadAsTheyWereWritten) {
    record::Entry entry;
    entry.set_at_ms(300);
    entry.mutable_note()->set_text(std::string(300, 'x'));
    const std::string bytes = bytes_of(entry);
    const TakenEntry taken = take_entry(bytes + "more");
    ASSERT_TRUE(taken.entry);
    EXPECT_EQ(taken.size, bytes.size());
    EXPECT_EQ(taken.entry->note().text(), entry.note().text());
    for (size_t size = 0; size < bytes.size(); ++size)
        EXPECT_FALSE(take_entry(bytes.substr(0, size)).size) << size;
}

TEST(RecordEntries, ALengthThatCannotBeIsNone) {
    EXPECT_EQ(take_entry(std::string("\x80\x80\x80\x80\x28", 5)).size, 0u) << "10 GiB";
    EXPECT_EQ(take_entry(std::string(10, '\xff')).size, 0u);
    EXPECT_EQ(take_entry(std::string(10, '\0')).size, 0u) << "a hole in a file";
    EXPECT_EQ(take_entry(std::string("\x02\xff\xff", 3)).size, 0u) << "no entry";
}

TEST_F(HostileRecordTest, OfACutPackedFileTheRestIsShown) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).note(1000, "seen");
    const auto whole = std::filesystem::file_size(file.path());
    EXPECT_TRUE(records().problems.empty()) << "the step still runs";
    EXPECT_EQ(records().runs[0].events.size(), 1u) << "what was written last can be read at once";
    file.note(2000, "not seen").end(3000);
    std::filesystem::resize_file(file.path(), whole + 6);
    EXPECT_EQ(records().runs.at(0).events.size(), 1u);
    EXPECT_NE(only_problem().find("cut at byte "), std::string::npos) << only_problem();
    EXPECT_NE(only_problem().find(" of what it unpacks to"), std::string::npos) << only_problem();
}

TEST_F(HostileRecordTest, WhereAPackedFileIsDamagedWhatCameBeforeIsShown) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).note(1000, "seen");
    std::ofstream(file.path(), std::ios::binary | std::ios::app) << std::string(8, '\xff');
    EXPECT_NE(only_problem().find("damaged at byte"), std::string::npos) << only_problem();
    EXPECT_EQ(records().runs[0].events.size(), 1u);
}

TEST_F(HostileRecordTest, WithAnyByteDamagedItIsReadOrRefused) {
    RecordedFile file(folder, 0, 2);
    file.generation(0, 0, {0, 1})
        .sample(1000, [](record::Sample& sample) { sample.add_compute_ms(1000); })
        .end(1100);
    const std::string good = read_file(file.path());
    for (size_t i = 0; i < good.size(); ++i) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 0x55);
        std::ofstream(file.path(), std::ios::binary) << bad;
        if (const auto read = read_records({folder}); read) timeline();
    }
}

TEST_F(HostileRecordTest, OfACutFileTheRestIsShown) {
    RecordedFile file(folder, 0, 1, RecordedFile::Format::plain);
    file.generation(0, 0, {0}, 1).note(1000, "seen");
    const auto whole = std::filesystem::file_size(file.path());
    file.note(2000, "not seen").end(3000);
    std::filesystem::resize_file(file.path(), whole + 5);
    const auto read = records();
    ASSERT_EQ(read.runs.size(), 1u);
    EXPECT_EQ(read.runs[0].events.size(), 1u);
    EXPECT_EQ(read.runs[0].outcome.how, RecordedRun::How::unknown);
    EXPECT_NE(only_problem().find("node0.dprecord: cut at byte " + std::to_string(whole)), std::string::npos)
        << only_problem();
}

TEST_F(HostileRecordTest, CutAnywhereItIsReadOrRefused) {
    for (const auto format : {RecordedFile::Format::packed, RecordedFile::Format::plain}) {
        RecordedFile file(folder, 0, 2, format);
        file.generation(0, 0, {0, 1})
            .moment(10, record::Moment::STARTED, 1)
            .sample(1000, [](record::Sample& sample) { sample.add_compute_ms(1000); })
            .end(1100);
        for (auto size = std::filesystem::file_size(file.path()); size > 0; --size) {
            std::filesystem::resize_file(file.path(), size - 1);
            if (const auto read = read_records({folder}); read) timeline();
        }
        EXPECT_NE(why_not().find("empty"), std::string::npos);
    }
}

TEST_F(HostileRecordTest, BehindBytesThatAreNoEntryNothingIsBelieved) {
    RecordedFile(folder, 0, 1)
        .note(1000, "seen")
        .raw("\x80\x80\x80\x80\x28 a length of 10 GiB")
        .note(2000, "not seen");
    EXPECT_NE(only_problem().find("damaged at byte"), std::string::npos) << only_problem();
    EXPECT_EQ(records().runs[0].events.size(), 1u);
}

TEST_F(HostileRecordTest, TimesThatCannotBeEndIt) {
    RecordedFile(folder, 0, 1).note(1000, "seen").note(999, "before");
    RecordedFile(folder, 1, 1).note(INT64_MAX, "in the year 292 million");
    RecordedFile(folder, 2, 1).note(-5, "before the beginning");
    EXPECT_EQ(records().problems.size(), 3u);
    for (const auto& problem : records().problems)
        EXPECT_NE(problem.find("a time that cannot be"), std::string::npos) << problem;
}

TEST_F(HostileRecordTest, NumbersThatCannotBeAreRefusedOrBounded) {
    RecordedFile(folder, 0, UINT32_MAX).end(1);
    RecordedFile(folder, 1, 1).generation(0, 0, {0, 1, 2}).end(1);
    RecordedFile extreme(folder, 2, 1, 1, INT64_MIN);
    extreme.generation(0, UINT32_MAX, {UINT32_MAX}, UINT32_MAX);
    for (int i = 0; i < 4; ++i)
        extreme.sample(i, [](record::Sample& sample) {
            sample.add_compute_ms(UINT32_MAX);
            sample.add_steps(UINT32_MAX);
            sample.add_step_count(INT64_MAX);
            sample.set_sent_kib(UINT64_MAX);
        });
    extreme.moment(5, record::Moment::STILL, UINT32_MAX, UINT32_MAX,
                   [](record::Moment& moment) { moment.set_still_ms(INT64_MIN); });
    extreme.moment(5, record::Moment::FIRST_STEP, UINT32_MAX, UINT32_MAX,
                   [](record::Moment& moment) { moment.set_step(UINT64_MAX); });
    const auto read = records();
    ASSERT_EQ(read.problems.size(), 2u);
    EXPECT_NE(read.problems[0].find("4294967295 tasks"), std::string::npos) << read.problems[0];
    EXPECT_NE(read.problems[1].find("a generation that cannot be"), std::string::npos) << read.problems[1];
    timeline();
}

TEST_F(HostileRecordTest, RanksOutsideOfTheWorldAreNotBelieved) {
    record::Entry hang, transports;
    hang.mutable_hang()->set_reason("rank 1 hangs");
    for (const uint32_t rank : {1u, 2u, UINT32_MAX}) hang.mutable_hang()->add_culprits(rank);
    auto& stack = *hang.mutable_hang()->add_stacks();
    for (const uint32_t rank : {0u, 2u, UINT32_MAX}) stack.add_ranks(rank);
    hang.mutable_hang()->add_stacks()->add_ranks(UINT32_MAX);
    for (const auto& [from, to] : {std::pair{0u, 1u}, {0u, 2u}, {UINT32_MAX, 1u}}) {
        auto& pair = *transports.mutable_transports()->add_pairs();
        pair.set_from(from);
        pair.set_to(to);
    }
    record::Entry of_no_generation = transports;
    of_no_generation.mutable_transports()->set_generation(3);
    RecordedFile(folder, 0, 2)
        .generation(0, 0, {0, 1}, 2)
        .add(1, hang)
        .add(2, transports)
        .add(3, of_no_generation);
    const RecordedRun run = records().runs.at(0);
    ASSERT_EQ(run.events.size(), 1u);
    ASSERT_EQ(run.events[0].calls.stacks.size(), 1u);
    EXPECT_EQ(run.events[0].calls.stacks[0].ranks, std::vector<uint32_t>{0});
    EXPECT_FALSE(run.events[0].calls.stacks[0].has_culprit);
    ASSERT_EQ(run.transports.pairs.size(), 1u);
    EXPECT_EQ(run.transports.pairs[0].to, 1u);
}

TEST_F(HostileRecordTest, ForeignFilesAreNamed) {
    RecordedFile(folder, 0, 1).end(1);
    foreign("a",
            "\x7f"
            "ELF");
    foreign("b", "slurm-dp record 3\n");
    foreign("c", std::string(kRecordMagic));
    for (const auto magic : {kRecordMagic, kPlainRecordMagic})
        foreign("cut in " + std::string(magic.substr(0, 17)), std::string(magic.substr(0, magic.size() - 1)));
    ASSERT_EQ(mkfifo((folder + "/d" + std::string(kRecordSuffix)).c_str(), 0600), 0);
    std::ofstream(folder + "/notes.txt") << "nobody looks at this";
    const auto read = records();
    ASSERT_EQ(read.problems.size(), 6u);
    EXPECT_NE(read.problems[0].find("not a record of slurm-dp"), std::string::npos);
    EXPECT_NE(read.problems[1].find("of a later version; read it with a newer slurm-dp"), std::string::npos);
    EXPECT_NE(read.problems[2].find("it has no beginning"), std::string::npos);
    for (const size_t i : {3, 4})
        EXPECT_NE(read.problems[i].find("cut at byte 17"), std::string::npos) << read.problems[i];
    EXPECT_NE(read.problems[5].find("not a file"), std::string::npos);
}

TEST_F(HostileRecordTest, WhereNothingCanBeShownThatIsSaid) {
    EXPECT_NE(why_not().find("there is no record (*.dprecord) in it; they are made with --dp-record=DIR"),
              std::string::npos);
    const auto nowhere = read_records({folder + "/nowhere"});
    ASSERT_FALSE(nowhere);
    EXPECT_NE(nowhere.error().message.find("there is no such directory or file"), std::string::npos);
    std::filesystem::create_symlink("loop", folder + "/loop");
    const auto out_of_reach = read_records({folder + "/loop/records"});
    ASSERT_FALSE(out_of_reach);
    EXPECT_NE(out_of_reach.error().message.find(std::strerror(ELOOP)), std::string::npos)
        << out_of_reach.error().message;
}

TEST_F(HostileRecordTest, MissingAndDoubleNodesAreSaid) {
    RecordedFile(folder, 0, 1, 3).end(1);
    std::filesystem::copy(folder + "/node0.dprecord", folder + "/node9.dprecord");
    const auto read = records();
    ASSERT_EQ(read.problems.size(), 2u);
    EXPECT_NE(read.problems[0].find("has the same node and run as"), std::string::npos) << read.problems[0];
    EXPECT_NE(read.problems[1].find("the records of 2 of 3 nodes are missing"), std::string::npos)
        << read.problems[1];
}

TEST_F(HostileRecordTest, TwoRecordsInOneFileAreNotMixed) {
    RecordedFile file(folder, 0, 1);
    record::Entry second;
    second.mutable_begin()->set_run("another");
    file.note(1, "seen").add(2, std::move(second)).note(3, "not seen");
    EXPECT_NE(only_problem().find("two records in one file"), std::string::npos) << only_problem();
    EXPECT_EQ(records().runs[0].events.size(), 1u);
}

TEST_F(HostileRecordTest, WhatIsDamagedLaterIsShownUntilThere) {
    RecordedFile bad(folder, 0, 1);
    bad.generation(0, 0, {0}, 1).moment(0, record::Moment::STARTED, 0);
    bad.moment(100, record::Moment::STILL, 0).sample(1000, [](record::Sample& sample) {
        sample.add_compute_ms(900);
    });
    bad.generation(2000, 0, {0}, 1).sample(3000, [](record::Sample& sample) { sample.add_compute_ms(1000); });
    EXPECT_NE(only_problem().find("a generation that cannot be"), std::string::npos) << only_problem();
    EXPECT_DOUBLE_EQ(timeline().allocated, 1) << "what is behind it is not believed";
}

// What is alike packs to next to nothing: a small file may hold a great many.
TEST_F(HostileRecordTest, OfWhatComesAgainAndAgainABoundedNumberIsKept) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1);
    std::string many;
    record::Entry end, still, moves;
    end.mutable_generation_end()->set_reason("lost");
    still.mutable_moment()->set_kind(record::Moment::STILL);
    moves.mutable_moment()->set_kind(record::Moment::MOVES);
    for (uint32_t i = 0; i < 200'000; ++i) {
        end.mutable_generation_end()->set_generation(i + 1);
        many += bytes_of(end) + bytes_of(still) + bytes_of(moves);
    }
    file.raw(many);
    EXPECT_LT(std::filesystem::file_size(file.path()), many.size() / 10);
    std::string problem;
    const auto read = read_node_file(file.path(), problem);
    ASSERT_TRUE(read && problem.empty()) << problem;
    EXPECT_LE(read->ends.size(), 10'000u);
    EXPECT_LE(read->node.tasks[0].lives[0].still.size(), 100'000u);
}

TEST_F(HostileRecordTest, APackedFileIsReadToItsChecksumAndNotFurther) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1).note(1000, "seen").finish();
    const std::string good = read_file(file.path());
    EXPECT_TRUE(records().problems.empty());
    std::string bad = good;
    bad[good.size() - 8] ^= 1;
    for (const std::string& bytes : {bad, good + "more"}) {
        std::ofstream(file.path(), std::ios::binary) << bytes;
        EXPECT_NE(only_problem().find("damaged at byte"), std::string::npos) << only_problem();
        EXPECT_EQ(records().runs[0].events.size(), 1u);
    }
}

// Text of a record reaches a terminal, JSON, and a page.
TEST_F(HostileRecordTest, NoTextOfARecordIsMoreThanText) {
    const std::string bad = "\x1b[31m</script><script>alert(1)</script>";
    RecordedFile(folder, 0, 1)
        .generation(0, 0, {0}, 1)
        .note(1, bad)
        .end_of_generation(2, 0, bad, true)
        .end(3);
    const Records all = records();
    Report report;
    report.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
    for (const std::string& text : {report_text(report), report_json(report)}) {
        EXPECT_EQ(text.find('\x1b'), std::string::npos);
        EXPECT_NE(text.find("?[31m</script>"), std::string::npos) << "it is shown";
    }
    const std::string page = report_page(report);
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    EXPECT_NE(page.find("\\u003cscript>alert(1)\\u003c/script>"), std::string::npos);
}

}  // namespace
}  // namespace dp
