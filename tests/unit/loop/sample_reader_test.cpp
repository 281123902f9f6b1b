// SPDX-License-Identifier: Apache-2.0
//
// A sample is what has grown since the last one, of each rank; a new process begins anew.
#include "loop/sample_reader.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace dp {
namespace {

constexpr int64_t kMs = 1'000'000;

PhasePage page(int64_t compute_ms, uint64_t steps) {
    PhasePage page;
    page.version = kPhasePageVersion;
    page.phase = 3;
    page.since_ns = 100'000 * kMs;
    page.total_ns[1] = compute_ms * kMs;
    page.steps = steps;
    return page;
}

TEST(SampleReader, TellsWhatHasGrown) {
    SampleReader reader;
    reader.read({{7, 0, 1, page(500, 10), 10}}, 100'000 * kMs);
    const auto sample = reader.read({{7, 0, 1, page(1200, 14), 14}, {8, 0, {}, {}, {}}}, 100'250 * kMs);
    ASSERT_EQ(sample.compute_ms_size(), 2);
    EXPECT_EQ(sample.compute_ms(0), 700u);
    EXPECT_EQ(sample.compute_ms(1), 0u);
    EXPECT_EQ(sample.communication_ms(0), 250u);
    EXPECT_EQ(sample.steps(0), 4u);
    EXPECT_EQ(sample.step_count(0), 4);
    EXPECT_EQ(sample.load_ms_size(), 0) << "nothing but zeros";
}

TEST(SampleReader, NoPartOfAMillisecondGetsLost) {
    SampleReader reader;
    uint32_t sum = 0;
    for (int64_t i = 1; i <= 10; ++i) {
        PhasePage one = page(0, 0);
        one.total_ns[1] = i * 700'000;
        const auto sample = reader.read({{0, 0, 1, one, {}}}, 100'000 * kMs);
        for (const uint32_t ms : sample.compute_ms()) sum += ms;
    }
    EXPECT_EQ(sum, 7u);
}

TEST(SampleReader, AnotherProcessBeginsAnew) {
    SampleReader reader;
    reader.read({{0, 0, 1, page(5000, 50), 50}}, 100'000 * kMs);
    const auto sample = reader.read({{0, 0, 2, page(300, 3), 53}}, 100'000 * kMs);
    EXPECT_EQ(sample.compute_ms(0), 300u);
    EXPECT_EQ(sample.steps(0), 3u);
    EXPECT_EQ(sample.step_count(0), 3) << "the training's count goes on";
}

// Without phases the first count may be a checkpoint's.
TEST(SampleReader, OnlyCountsStepsThatItHasSeen) {
    SampleReader reader;
    EXPECT_EQ(reader.read({{0, 0, 1, {}, 5000}}, kMs).steps_size(), 0);
    EXPECT_EQ(reader.read({{0, 0, 1, {}, 5004}}, kMs).steps(0), 4u);
}

TEST(SampleReader, WhoHasClosedItsWorldHasDoneNothingSince) {
    SampleReader reader;
    reader.read({{0, 0, 1, page(5000, 50), 50}}, 100'000 * kMs);
    // What the rank's process said last is still known.
    const auto sample = reader.read({{0, 0, {}, {}, 50}}, 101'000 * kMs);
    EXPECT_EQ(sample.compute_ms_size(), 0);
    EXPECT_EQ(sample.steps_size(), 0);
    EXPECT_EQ(sample.step_count_size(), 0);
    EXPECT_EQ(reader.read({{0, 0, {}, {}, 50}}, 102'000 * kMs).step_count_size(), 0);
}

// dp_rejoin: another rank, perhaps, in the same process.
TEST(SampleReader, OfASurvivorOnlyWhatIsNewCounts) {
    SampleReader reader;
    reader.read({{3, getpid(), 1, page(5000, 50), 50}}, 100'000 * kMs);
    reader.begin_generation();
    const auto sample = reader.read({{2, getpid(), 1, page(5400, 52), 52}}, 100'000 * kMs);
    EXPECT_EQ(sample.compute_ms(0), 400u);
    EXPECT_EQ(sample.steps(0), 2u);
    EXPECT_EQ(sample.step_count(0), 52) << "from 0 in each generation";
    for (const uint32_t ms : sample.cpu_ms()) EXPECT_LT(ms, 50u);
}

TEST(SampleReader, SeesThisProcess) {
    SampleReader reader;
    const auto sample = reader.read({{0, getpid(), {}, {}, {}}}, kMs);
    ASSERT_EQ(sample.memory_mib_size(), 1);
    EXPECT_GT(sample.memory_mib(0), 0u);
    EXPECT_GT(sample.node_memory_mib(), 0u);
}

TEST(SampleReader, TrafficIsThatOfAllInterfacesButLo) {
    const Traffic traffic = read_traffic(
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo "
        "colls carrier compressed\n"
        "    lo: 1000000    10    0    0    0     0          0         0  1000000    10    0    0    0     0 "
        "      0          0\n"
        "  eth0:    4096    10    0    0    0     0          0         0     2048    10    0    0    0     0 "
        "      0          0\n"
        "   ib0:       4    10    0    0    0     0          0         0        8    10    0    0    0     0 "
        "      0          0\n"
        "broken\n");
    EXPECT_EQ(traffic.received, 4100u);
    EXPECT_EQ(traffic.sent, 2056u);
}

}  // namespace
}  // namespace dp
