// SPDX-License-Identifier: Apache-2.0
#include "stacks/stillness.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace dp::stacks {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTimeout = seconds(10);

// A process that is looked at for so long.
struct Looked {
    StillnessDetector detector{kTimeout};
    Look look{SteadyTime(seconds(1000)), 1, 0, {}, {}};

    void at(
        milliseconds time, const std::function<void(Look&, int number)>& change = [](Look&, int) {}) {
        const milliseconds interval = look_interval(kTimeout);
        for (int i = 0; i * interval < time; ++i) {
            look.at += interval;
            change(look, i);
            detector.note(look);
        }
    }
    bool is_still() const { return detector.still_since().has_value(); }
};

TEST(Stillness, OnePlaceForTheTimeout) {
    Looked process;
    process.at(kTimeout - seconds(1));
    EXPECT_FALSE(process.is_still());
    process.at(seconds(2));
    ASSERT_TRUE(process.is_still());
    EXPECT_LE(*process.detector.still_since() - SteadyTime(seconds(1000)), look_interval(kTimeout));
    EXPECT_FALSE(process.detector.is_busy());
}

TEST(Stillness, ATrainingIsElsewhereNowAndThen) {
    Looked process;
    process.at(10 * kTimeout,
               [](Look& look, int i) { look.place = i % 50 == 0 ? 1000 + static_cast<uint64_t>(i) : 1; });
    EXPECT_FALSE(process.is_still()) << "two of a hundred looks";
}

TEST(Stillness, WhatWasCountedBeforeItCameIsNotItsWorkThere) {
    Looked process;
    process.at(seconds(1), [](Look& look, int i) { look.place = 2 + static_cast<uint64_t>(i); });
    process.look.place = 1;
    process.look.is_counted = false;
    process.at(look_interval(kTimeout));
    EXPECT_TRUE(process.detector.wants_counts(process.look));
    // It has worked until then, and that is counted only now.
    process.look.calls = 1000;
    process.look.transferred = 100 << 20;
    process.look.cpu = process.look.children_cpu = seconds(1);
    process.look.is_counted = true;
    process.at(kTimeout);
    EXPECT_TRUE(process.is_still());
    EXPECT_FALSE(process.detector.is_busy());
}

TEST(Stillness, ALoopOfLongWaitsMoves) {
    Looked process;
    for (uint64_t round = 1; round < 20; ++round) {
        process.at(kTimeout / 2, [&](Look& look, int) { look.place = round; });
        EXPECT_FALSE(process.is_still()) << round;
    }
}

TEST(Stillness, AWaitThatPollsIsStill) {
    Looked process;
    process.at(2 * kTimeout, [](Look& look, int i) { look.place = i % 150 == 149 ? 2 : 1; });
    EXPECT_TRUE(process.is_still());
}

TEST(Stillness, ManyLinesAreWorkAndFewMayBeAnEndlessLoop) {
    Looked works, spins;
    works.at(2 * kTimeout, [](Look& look, int i) { look.line = static_cast<uint64_t>(i % 5); });
    EXPECT_FALSE(works.is_still());
    spins.at(2 * kTimeout, [](Look& look, int i) { look.line = static_cast<uint64_t>(i % 3); });
    EXPECT_TRUE(spins.is_still());
}

TEST(Stillness, WhatCannotBeReadMoves) {
    Looked process;
    process.at(2 * kTimeout, [](Look& look, int) { look.place = 0; });
    EXPECT_FALSE(process.is_still());
}

TEST(Stillness, ACheckpointToASlowDiskIsWork) {
    Looked process;
    process.at(4 * kTimeout, [](Look& look, int) { look.transferred += 1000; });
    EXPECT_FALSE(process.is_still()) << "20 kB/s";
}

TEST(Stillness, ALineOfAnotherThreadsLogIsNot) {
    Looked process;
    process.at(2 * kTimeout, [](Look& look, int i) { look.transferred += i % 100 == 0 ? 80 : 0; });
    EXPECT_TRUE(process.is_still());
}

TEST(Stillness, ChildrenThatComputeAreWork) {
    Looked process;
    process.at(4 * kTimeout, [](Look& look, int) { look.children_cpu += look_interval(kTimeout) / 2; });
    EXPECT_FALSE(process.is_still());
}

TEST(Stillness, WhatComputesAtOnePlaceIsBusy) {
    Looked process;
    const auto compute = [](Look& look, int) { look.cpu += look_interval(kTimeout); };
    process.at(kTimeout + seconds(1), compute);
    EXPECT_TRUE(process.is_still());
    EXPECT_TRUE(process.detector.is_busy());
    EXPECT_FALSE(process.detector.has_been_busy_for_long());
    process.at(kPatienceWithBusy * kTimeout, compute);
    EXPECT_TRUE(process.detector.has_been_busy_for_long());
}

TEST(Stillness, APauseOfTheWholeStepDoesNotCount) {
    Looked process;
    process.at(kTimeout - seconds(1));
    process.look.at += seconds(3600);  // scontrol suspend: nobody looked
    process.detector.reset();
    process.at(kTimeout - seconds(1));
    EXPECT_FALSE(process.is_still());
}

TEST(Stillness, ACallThatReadsOrWritesIsWork) {
    Looked process;
    process.at(2 * kTimeout, [](Look& look, int i) { look.calls += i % 100 == 0; });
    EXPECT_FALSE(process.is_still()) << "a batch from a loader's pipe every five seconds";
}

TEST(Stillness, AWaitThatPollsStaysStill) {
    Looked process;
    process.at(50 * kTimeout, [](Look& look, int i) { look.place = i % 150 == 149 ? 2 : 1; });
    EXPECT_GT(process.look.at - *process.detector.still_since(), 49 * kTimeout);
}

TEST(Stillness, LooksAreNeitherRareNorMany) {
    EXPECT_EQ(look_interval(seconds(1)), milliseconds(20));
    EXPECT_EQ(look_interval(seconds(10)), milliseconds(50));
    EXPECT_EQ(look_interval(seconds(600)), milliseconds(500));
}

}  // namespace
}  // namespace dp::stacks
