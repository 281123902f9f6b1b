// SPDX-License-Identifier: Apache-2.0
//
// A sample is what has grown since the last one, of each rank; a new process begins anew.
#include "loop/sample_reader.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "record/entries.hpp"

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

TEST(SampleReader, InDetailItHasEachPhaseThatHasEnded) {
    SampleReader reader;
    PhasePage page;
    begin_phases(page, 1, 100 * kMs);
    enter_phase(page, 3, 103 * kMs);
    reader.read({{7, 0, 1, page, {}}}, 104 * kMs);
    enter_phase(page, 1, 104 * kMs);
    for (int i = 0; i < 41; ++i) end_step(page, 105 * kMs);
    enter_phase(page, 4, 105 * kMs + 1500);
    enter_phase(page, 1, 105 * kMs + 2499);
    EXPECT_EQ(SampleReader(reader).read({{7, 0, 1, page, {}}}, 106 * kMs).details_size(), 0);
    const auto sample =
        reader.read({{6, 0, {}, {}, {}}, {7, 0, 1, page, {}}}, 106 * kMs, EndedPhases::recorded, 105 * kMs);
    ASSERT_EQ(sample.details_size(), 1);
    const auto& detail = sample.details(0);
    EXPECT_EQ(detail.task(), 1u);
    EXPECT_EQ(detail.before_us(), 2000)
        << "before its entry: the phase that had not ended at the last sample";
    EXPECT_EQ(std::vector<uint64_t>(detail.length_us().begin(), detail.length_us().end()),
              (std::vector<uint64_t>{1000, 1001, 1}));
    EXPECT_EQ(detail.step_and_phase(), std::string("\x03\x01\xfc", 3)) << "of 40 steps at most 31 are told";
    EXPECT_EQ(reader.read({{7, 0, 1, page, {}}}, 107 * kMs, EndedPhases::recorded, 107 * kMs).details_size(),
              0);
}

// With --dp-record-interval=0.1 a second's phases are in one sample of it.
TEST(SampleReader, PhasesThatAreKeptAreInTheNextDetail) {
    SampleReader reader;
    PhasePage page;
    begin_phases(page, 1, 100 * kMs);
    const auto read = [&](int64_t ms, EndedPhases ended) {
        enter_phase(page, 3, ms * kMs);
        enter_phase(page, 1, (ms + 1) * kMs);
        return reader.read({{7, 0, 1, page, {}}}, (ms + 2) * kMs, ended, (ms + 2) * kMs);
    };
    EXPECT_EQ(read(110, EndedPhases::dropped).details_size(), 0);
    for (const int64_t ms : {120, 130, 140}) {
        const auto sample = read(ms, EndedPhases::kept);
        EXPECT_EQ(sample.details_size(), 0);
        EXPECT_EQ(sample.compute_ms(0), 9u) << "what it counts is its own all the same";
    }
    const auto sample = read(150, EndedPhases::recorded);
    ASSERT_EQ(sample.details_size(), 1);
    EXPECT_EQ(sample.details(0).length_us_size(), 8);
    EXPECT_EQ(sample.details(0).before_us(), 152'000 - 111'000);
    EXPECT_EQ(read(160, EndedPhases::recorded).details(0).length_us_size(), 2);
}

// An entry's time is in whole milliseconds, a phase's is not.
TEST(SampleReader, DetailsEndWhereTheNextBegin) {
    SampleReader reader;
    PhasePage page;
    begin_phases(page, 1, 100 * kMs + 1'700);
    enter_phase(page, 3, 103 * kMs + 2'900);
    const auto before =
        reader.read({{7, 0, 1, page, {}}}, 103 * kMs + 5'000, EndedPhases::recorded, 103 * kMs).details(0);
    enter_phase(page, 1, 104 * kMs + 3'100);
    const auto after =
        reader.read({{7, 0, 1, page, {}}}, 105 * kMs, EndedPhases::recorded, 104 * kMs).details(0);
    EXPECT_EQ(before.before_us(), 2999);
    EXPECT_EQ(before.length_us(0), 3001u);
    EXPECT_EQ(after.before_us(), 998) << "3.002 ms + 0.998 ms: 104 - 100 ms";
    EXPECT_EQ(after.length_us(0), 1001u);
    enter_phase(page, 2, 105 * kMs + 100'000);
    enter_phase(page, 1, 4'400'105 * kMs);
    const auto last =
        reader.read({{7, 0, 1, page, {}}}, 4'400'106 * kMs, EndedPhases::recorded, 105 * kMs).details(0);
    EXPECT_EQ(last.before_us(), 997);
    enter_phase(page, 2, 4'400'106 * kMs);
    const auto late =
        reader.read({{7, 0, 1, page, {}}}, 4'400'106 * kMs, EndedPhases::recorded, 4'400'104 * kMs)
            .details(0);
    EXPECT_EQ(late.before_us(), -1000) << "it began after its entry's millisecond";
    EXPECT_EQ(last.length_us(1), 4'399'999'900u) << "more than an hour";
}

TEST(SampleReader, AnEntryOfManyRanksCanStillBeRead) {
    PhasePage page;
    begin_phases(page, 1, 0);
    for (int64_t i = 1; i <= 200; ++i) enter_phase(page, i % 2 == 0 ? 1 : 3, i * 1000 * kMs);
    std::vector<SampleReader::Rank> ranks;
    for (uint32_t i = 0; i < 600; ++i) ranks.push_back({i, 0, i + 1, page, {}});
    record::Entry entry;
    *entry.mutable_sample() = SampleReader().read(ranks, 201'000 * kMs, EndedPhases::recorded, 201'000 * kMs);
    EXPECT_EQ(entry.sample().details_size(), 512);
    EXPECT_TRUE(take_entry(bytes_of(entry)).entry);
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
    reader.begin_generation(4);
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

TEST(SampleReader, HasTheScalarsOfAPageWithoutPhases) {
    SampleReader reader;
    PhasePage page;
    log_scalar(page, "loss", 0.5, 30);
    const auto sample = reader.read({{6, 0, {}, {}, {}}, {7, 0, 1, page, 30}}, kMs);
    ASSERT_EQ(sample.scalars_size(), 1);
    EXPECT_EQ(sample.scalars(0).task(), 1u);
    EXPECT_EQ(sample.scalars(0).name(), "loss");
    EXPECT_EQ(sample.scalars(0).step(), 30u);
    EXPECT_EQ(sample.compute_ms_size(), 0);
    const auto next = reader.read({{6, 0, {}, {}, {}}, {7, 0, 1, page, 34}}, 2 * kMs);
    EXPECT_EQ(next.scalars_size(), 0) << "nothing new";
    EXPECT_EQ(next.steps(1), 4u) << "the training's count, since the page has none";
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
