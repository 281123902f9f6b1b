// SPDX-License-Identifier: Apache-2.0
//
// What ranks did when they hung, in a record: bounded as it is written and as it is read, under the line that tells of the hang.
#include "record/hang.hpp"

#include "dpctl/report.hpp"
#include "recorded.hpp"

namespace dp {
namespace {

using Calls = std::map<uint32_t, wire::RankStacks::Thread>;

wire::RankStacks::Thread calls(std::initializer_list<const char*> functions) {
    wire::RankStacks::Thread thread;
    for (const char* function : functions) {
        auto& frame = *thread.add_frames();
        frame.set_function(function);
        frame.set_file("train.py");
        frame.set_line(7);
    }
    return thread;
}

wire::Hang hang(const std::string& reason, std::initializer_list<uint32_t> culprits) {
    wire::Hang said;
    said.set_reason(reason);
    for (const uint32_t rank : culprits) said.add_culprits(rank);
    return said;
}

TEST(RecordedHang, RanksWithEqualCallsAreTogetherAndTheCauseIsFirst) {
    const auto entry = hang_entry(2, hang("why", {3}),
                                  {{0, calls({"recv", "all_reduce"})},
                                   {1, calls({"recv", "all_reduce"})},
                                   {2, calls({"recv"})},
                                   {3, calls({"recv", "all_reduce"})}});
    ASSERT_EQ(entry.hang().stacks_size(), 3);
    EXPECT_EQ(entry.hang().generation(), 2u);
    const auto read = calls_of(entry.hang(), 4);
    EXPECT_EQ(read.stacks[0].ranks, std::vector<uint32_t>{3});
    EXPECT_TRUE(read.stacks[0].has_culprit);
    EXPECT_EQ(read.stacks[1].ranks, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(in_words(read.stacks[1].frames[1]), "all_reduce (train.py:7)");
    EXPECT_EQ(read.ranks_left_out, 0u);
}

TEST(RecordedHang, IsBounded) {
    Calls all;
    for (uint32_t rank = 0; rank < kMostStacks + 5; ++rank) {
        all[rank] = calls({});
        for (size_t frame = 0; frame < 2 * kMostFrames; ++frame)
            all[rank].add_frames()->set_function(std::to_string(rank) + std::string(500, 'f') + "\x1b");
    }
    const auto entry = hang_entry(0, hang(std::string(9000, 'r'), {}), all);
    EXPECT_LT(bytes_of(entry).size(), kMaxRecordEntry / 2);
    EXPECT_EQ(entry.hang().stacks_size(), static_cast<int>(kMostStacks));
    EXPECT_EQ(entry.hang().ranks_left_out(), 5u);
    record::Hang hostile = entry.hang();
    for (int i = 0; i < 100; ++i) *hostile.add_stacks() = hostile.stacks(i);
    for (int i = 0; i < 1000; ++i) hostile.mutable_stacks(0)->add_frames()->set_file(std::string(9000, 'x'));
    const auto read = calls_of(hostile, kMostStacks + 5);
    ASSERT_EQ(read.stacks.size(), kMostStacks);
    EXPECT_EQ(read.stacks[0].frames.size(), kMostFrames);
    EXPECT_EQ(in_words(read.stacks[0].frames[0]).find('\x1b'), std::string::npos);
}

class RecordedHangTest : public RecordTest {
 protected:
    const std::string reason =
        "no progress for 30 s (--dp-hang-timeout): rank 1 on node1 is in load (a.py:3)";

    Report report() const {
        const Records all = records();
        Report out;
        out.runs.push_back({all.runs[0], *read_timeline(all.runs[0])});
        return out;
    }
};

TEST_F(RecordedHangTest, IsUnderTheLineThatTellsOfIt) {
    RecordedFile(folder, 0, 1, 2)
        .generation(0, 0, {0})
        .add(900, hang_entry(0, hang(reason, {1}), {{0, calls({"recv", "all_reduce"})}}))
        .note(1000, reason + "; ending the step")
        .note(1000, "another line")
        .end(1100);
    RecordedFile(folder, 1, 1, 2)
        .generation(0, 0, {1})
        .add(950, hang_entry(0, hang(reason, {1}), {{1, calls({"load"})}}))
        .end(1100);
    const auto events = records().runs[0].events;
    ASSERT_EQ(events.size(), 2u);
    ASSERT_EQ(events[0].calls.stacks.size(), 2u) << "of both nodes";
    EXPECT_EQ(events[0].calls.stacks[0].ranks, std::vector<uint32_t>{1});
    EXPECT_TRUE(events[1].calls.stacks.empty());
    EXPECT_NE(report_text(report()).find("; ending the step\n"
                                         "        rank 1, the cause\n"
                                         "          load (train.py:7)\n"
                                         "        rank 0\n"
                                         "          recv (train.py:7)\n"
                                         "          all_reduce (train.py:7)\n"
                                         "    0:00:01.000  node0  another line\n"),
              std::string::npos)
        << report_text(report());
}

TEST_F(RecordedHangTest, WithoutTheRecordOfItsTellerItIsALineOfItsOwn) {
    RecordedFile(folder, 1, 1, 2)
        .generation(0, 0, {1})
        .note(500, "before")
        .add(950, hang_entry(0, hang(reason, {1}), {{1, calls({"load"})}}))
        .note(960, "after")
        .end(1100);
    const auto events = records().runs[0].events;
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[1].text, reason);
    EXPECT_EQ(events[1].calls.stacks.size(), 1u);
}

TEST_F(RecordedHangTest, OfManyOnlySoManyAreRead) {
    RecordedFile file(folder, 0, 1);
    file.generation(0, 0, {0}, 1);
    for (int i = 0; i < 100; ++i)
        file.add(i, hang_entry(0, hang("hang " + std::to_string(i) + ";", {}), {{0, calls({"load"})}}));
    EXPECT_EQ(records().runs[0].events.size(), kMostHangs);
}

// A function may have any name, and a file, too.
TEST_F(RecordedHangTest, NoNameIsMoreThanText) {
    RecordedFile(folder, 0, 1)
        .generation(0, 0, {0}, 1)
        .add(1, hang_entry(0, hang("why", {}), {{0, calls({"</script><script>alert(1)</script>"})}}))
        .end(2);
    const std::string page = report_page(report());
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    EXPECT_NE(page.find("\\u003cscript>alert(1)"), std::string::npos);
}

}  // namespace
}  // namespace dp
