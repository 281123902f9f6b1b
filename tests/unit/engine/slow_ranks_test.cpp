// SPDX-License-Identifier: Apache-2.0
#include "engine/slow_ranks.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "simulation.hpp"

namespace dp {
namespace {

wire::RankPace pace_of(uint32_t rank, uint64_t steps, int64_t own_ms) {
    wire::RankPace pace;
    pace.set_rank(rank);
    pace.set_steps(steps);
    pace.set_own_ns(own_ms * 1'000'000);
    for (const int64_t ms : {int64_t{0}, own_ms, int64_t{0}, int64_t{200} - own_ms, int64_t{0}})
        pace.add_phase_ns(ms * 1'000'000);
    return pace;
}

struct Paces {
    explicit Paces(Settings more = {}) : step(2, 2, Time(10000), false, FailureAction::report, more) {
        step.join_all();
        step.start_all();
        step.hello_all();
        step.log.clear();
    }
    // All nodes tell the times of their ranks' steps.
    void tell(const std::vector<int64_t>& own_ms, uint64_t more_steps = 30) {
        steps += more_steps;
        for (uint32_t node = 0; node < 2; ++node) {
            wire::NodePaces paces;
            for (uint32_t rank = 2 * node; rank < 2 * node + 2; ++rank)
                if (own_ms[rank] > 0) *paces.add_ranks() = pace_of(rank, steps, own_ms[rank]);
            step.answer(node, wrap(&wire::FromNode::mutable_paces, std::move(paces)));
        }
        step.pass(Time(5000));
    }
    std::vector<std::string> take() { return std::exchange(step.log, {}); }
    Simulation step;
    uint64_t steps = 0;
};
using Lines = std::vector<std::string>;

TEST(SlowRanks, OneIsNamedOnceAfter50StepsAndSoIsItsEnd) {
    Paces paces;
    paces.tell({100, 101, 99, 131});
    paces.tell({100, 101, 99, 131});
    EXPECT_EQ(paces.take(), Lines{}) << "for 30 steps";
    for (int i = 0; i < 3; ++i) paces.tell({100, 101, 99, 131});
    EXPECT_EQ(paces.take(), Lines{"rank 3 on gpu1 is slow (--dp-slow): 131 ms a step, not counting waits for "
                                  "other ranks; the median is 100 ms; "
                                  "131 ms in compute (median 100 ms)"});
    for (int i = 0; i < 2; ++i) paces.tell({100, 101, 99, 105});
    for (int i = 0; i < 9; ++i) paces.tell({100, 101, 99, 119});
    EXPECT_EQ(paces.take(), Lines{}) << "a moment, and then near the limit";
    for (int i = 0; i < 4; ++i) paces.tell({100, 101, 99, 105});
    EXPECT_EQ(paces.take(), Lines{"rank 3 on gpu1 keeps up with the others again: 105 ms a step, not "
                                  "counting waits for other ranks; the median is 100 ms"});
}

TEST(SlowRanks, ASlowNodesAreNamedTogether) {
    Paces paces;
    for (int i = 0; i < 4; ++i) paces.tell({100, 100, 150, 170}, 100);
    EXPECT_EQ(
        paces.take(),
        Lines{"ranks 2-3 on gpu1 are slow (--dp-slow): 150 ms to 170 ms a step, not counting waits for other "
              "ranks; the median is 100 ms; the slowest is rank 3; 170 ms in compute (median 100 ms)"});
}

TEST(SlowRanks, NobodyIsWhereAllAreAlikeOrNobodyAsks) {
    Paces all;
    for (int i = 0; i < 5; ++i) all.tell({100, 119, 81, 100}, 100);
    EXPECT_EQ(all.take(), Lines{});
    Settings off;
    off.slow_percent = 0;
    Paces paces(off);
    for (int i = 0; i < 5; ++i) paces.tell({100, 100, 100, 1000}, 100);
    EXPECT_EQ(paces.take(), Lines{});
}

// Of two ranks the faster one sets the pace, and one alone has nobody to be compared with.
TEST(SlowRanks, TwoAreEnough) {
    Paces two;
    for (int i = 0; i < 4; ++i) two.tell({100, 0, 0, 130}, 100);
    EXPECT_EQ(two.take().size(), 1u);
    Paces one;
    for (int i = 0; i < 3; ++i) one.tell({0, 0, 0, 130}, 100);
    EXPECT_EQ(one.take(), Lines{});
}

// Where a device does the work, the host's part of a step is small, and a slow one costs nobody anything.
TEST(SlowRanks, WhatDoesNotMatterIsNotNamed) {
    Paces paces;
    for (int i = 0; i < 5; ++i) paces.tell({4, 4, 4, 12}, 100);
    EXPECT_EQ(paces.take(), Lines{}) << "8 ms of 200";
    for (int i = 0; i < 4; ++i) paces.tell({4, 4, 4, 15}, 100);
    EXPECT_EQ(paces.take().size(), 1u) << "11 ms of 200";
}

TEST(SlowRanks, WhatCannotBeIsNotBelieved) {
    SlowRanks slow(20, ModelParallel::of_world(4, 1, 1));
    Simulation step(2, 2);
    for (int i = 0; i < 5; ++i) {
        for (uint32_t rank = 0; rank < 4; ++rank) {
            wire::RankPace pace = pace_of(rank, static_cast<uint64_t>(100 * i), rank == 3 ? 131 : 100);
            pace.set_core_waited(std::nan(""));
            pace.set_throttled(rank == 3 ? -1e300 : HUGE_VAL);
            pace.set_major_faults(1e300);
            if (rank == 2) pace.set_phase_ns(1, INT64_MIN);
            slow.note(pace);
        }
        for (const auto& line : slow.take(step.broker->membership(), Time(5000 * (i + 1)))) {
            EXPECT_TRUE(line.ends_with("; 131 ms in compute (median 100 ms)")) << line;
        }
    }
}

// A pipeline's stages have different work.
TEST(SlowRanks, OnlyRanksWithTheSameWorkAreCompared) {
    Settings more;
    more.pipeline = 2;
    Paces paces(more);
    for (int i = 0; i < 3; ++i) paces.tell({100, 100, 150, 150}, 100);
    EXPECT_EQ(paces.take(), Lines{});
    for (int i = 0; i < 4; ++i) paces.tell({100, 100, 150, 190}, 100);
    EXPECT_EQ(paces.take().size(), 1u);
}

TEST(SlowRanks, WhatSetsOneApartIsSaid) {
    const struct {
        void (*set)(wire::RankPace& pace, bool is_slow);
        const char* words;
    } cases[] = {
        {[](wire::RankPace& pace, bool is_slow) {
             pace.clear_phase_ns();
             for (const int64_t ms : {0, 90, is_slow ? 40 : 10, 30, 0}) pace.add_phase_ns(ms * 1'000'000);
         },
         "; 40 ms in load (median 10 ms)"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_core_waited(is_slow ? 0.43 : 0.01); },
         "; it waits for a core for 43 % of the time (median 1 %): other threads run there, of this program "
         "or another"},
        {[](wire::RankPace& pace, bool is_slow) {
             pace.set_throttled(is_slow ? 0.3 : 0);
             pace.set_core_waited(is_slow ? 0.3 : 0);
         },
         "; its CPU quota (cpu.max) holds it back in 30 % of the periods (median 0 %)"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_overheated(is_slow ? 12 : 0); },
         "; the kernel throttles its core 12.0 times a second (median 0.0): heat"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_major_faults(is_slow ? 800 : 3); },
         "; it reads mapped files or swapped memory: 800 major page faults a second (median 3)"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_retransmissions(is_slow ? 100 : 2); },
         "; its node retransmits 100 TCP segments a second (median 2)"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_gpu_clock_lost(is_slow ? 0.4 : 0.05); },
         "; its GPU runs at 60 % of its highest clock (median 95 %)"},
        {[](wire::RankPace& pace, bool is_slow) {
             pace.set_gpu_clock_lost(is_slow ? 0.4 : 0.05);
             pace.set_gpu_slowed(is_slow);
         },
         "; heat or its power supply slows its GPU down"},
        {[](wire::RankPace& pace, bool is_slow) {
             pace.set_gpu_xid(is_slow ? 94 : 0);  // before errors, which it explains
             pace.set_gpu_errors(is_slow ? 3 : 0);
         },
         "; its GPU has had the XID event 94 meanwhile: see dmesg and NVIDIA's \"XID Errors\""},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_clock_lost(is_slow ? 0.4 : 0.1); },
         "; its core runs at 60 % of its highest clock (median 90 %)"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_clock_lost(is_slow ? 0.4 : 0.3); }, ""},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_memory_bytes(is_slow ? 91e9 : 30e9); },
         "; the cores that share its L3 cache move 91 GB/s from and to memory (median 30 GB/s): a "
         "neighbour's "
         "work, or its own"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_memory_bytes(is_slow ? 91e9 : 80e9); }, ""},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_gpu_errors(is_slow ? 3 : 0); },
         "; its GPU has had 3 uncorrected memory errors meanwhile"},
        {[](wire::RankPace& pace, bool is_slow) { pace.set_gpu_clock_lost(is_slow ? 0.45 : 0.25); },
         "; its GPU runs at 55 % of its highest clock (median 75 %)"},
        {[](wire::RankPace& pace, bool) { pace.set_gpu_slowed(1); }, ""},
        {[](wire::RankPace& pace, bool is_slow) {
             pace.set_core_waited(is_slow ? 0.04 : 0);
             pace.set_major_faults(is_slow ? 5 : 0);
         },
         ""},
        {[](wire::RankPace& pace, bool is_slow) {
             if (is_slow) pace.set_core_waited(0.5);
         },
         ""},
    };
    Simulation step(2, 2);
    for (const auto& c : cases) {
        SlowRanks slow(20, ModelParallel::of_world(4, 1, 1));
        Lines lines;
        for (int i = 0; i < 4; ++i) {
            for (uint32_t rank = 0; rank < 4; ++rank) {
                wire::RankPace pace = pace_of(rank, static_cast<uint64_t>(100 * i), rank == 3 ? 131 : 100);
                c.set(pace, rank == 3);
                slow.note(pace);
            }
            for (auto& line : slow.take(step.broker->membership(), Time(5000 * (i + 1))))
                lines.push_back(line);
        }
        ASSERT_EQ(lines.size(), 1u);
        const std::string phase =
            lines[0].find("load") == std::string::npos ? "; 131 ms in compute (median 100 ms)" : "";
        EXPECT_TRUE(lines[0].ends_with("the median is 100 ms" + phase + c.words)) << lines[0];
    }
}

}  // namespace
}  // namespace dp
