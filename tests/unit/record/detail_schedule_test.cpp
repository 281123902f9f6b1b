// SPDX-License-Identifier: Apache-2.0
#include "record/detail_schedule.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

using std::chrono::seconds;

constexpr int64_t kBetween = 1'800'000'005;  // the wall clock in a pause of all worlds

TEST(DetailSchedule, BeginsWithTheFirstPhaseAndLastsTenSeconds) {
    DetailSchedule schedule;
    const struct {
        int now;
        bool has_phases, is_on;
    } cases[] = {
        {0, false, false}, {59, false, false}, {60, true, true}, {69, true, true}, {70, true, false}};
    for (const auto& one : cases)
        EXPECT_EQ(schedule.is_on(seconds(one.now), one.has_phases, kBetween, 8), one.is_on) << one.now;
    EXPECT_FALSE(schedule.is_on(seconds(80), false, kBetween, 8));
    EXPECT_FALSE(schedule.is_on(seconds(81), true, kBetween, 8)) << "no second time in a generation";
}

TEST(DetailSchedule, TwoSecondsFollowNowAndThenOnAllNodesTogether) {
    const struct {
        int64_t unix_s;
        uint32_t world_size;
        bool is_on;
    } cases[] = {{1'800'000'000, 64, true},  {1'800'000'001, 64, true},   {1'800'000'002, 64, false},
                 {1'800'000'019, 64, false}, {1'800'000'020, 64, true},   {1'800'000'020, 65, false},
                 {1'800'000'120, 65, false}, {1'800'000'301, 1024, true}, {1'800'000'302, 1024, false}};
    for (const auto& one : cases)
        EXPECT_EQ(DetailSchedule().is_on(seconds(500), false, one.unix_s, one.world_size), one.is_on)
            << one.unix_s << " " << one.world_size;
}

TEST(DetailSchedule, AStepThatRestartsAllTheTimeRecordsNoMoreThanThreeBeginningsAnHour) {
    DetailSchedule schedule;
    for (int generation = 0; generation < 240; ++generation) {
        const int now = generation * 60;
        schedule.begin_generation();
        EXPECT_FALSE(schedule.is_on(seconds(now), false, kBetween, 8)) << now;
        EXPECT_EQ(schedule.is_on(seconds(now + 1), true, kBetween, 8), generation % 60 < 3) << now;
    }
}

// In ms; how many samples of two minutes have phases.
size_t recorded_with(int64_t interval) {
    DetailSchedule schedule;
    size_t recorded = 0;
    for (int64_t at = 0; at < 120'000; at += interval)
        recorded += schedule.at_sample(seconds(at / 1000), true, kBetween + at / 1000, 8, true) ==
                    EndedPhases::recorded;
    return recorded;
}

TEST(DetailSchedule, AsManySamplesHavePhasesHoweverShortTheInterval) {
    EXPECT_EQ(recorded_with(1000), 10u + 6 * 2);
    for (const int64_t interval : {100, 125, 333, 500})
        EXPECT_EQ(recorded_with(interval), recorded_with(1000)) << interval;
}

TEST(DetailSchedule, WhatWasUntilSomethingEndsIsRecordedWithinTheSecond) {
    DetailSchedule schedule;
    const auto at_sample = [&](int now, bool is_regular) {
        return schedule.at_sample(seconds(now), true, kBetween + now, 8, is_regular);
    };
    EXPECT_EQ(at_sample(0, true), EndedPhases::recorded);
    EXPECT_EQ(at_sample(0, true), EndedPhases::kept);
    EXPECT_EQ(at_sample(0, false), EndedPhases::recorded);
    EXPECT_EQ(at_sample(0, true), EndedPhases::kept);
    EXPECT_EQ(at_sample(10, false), EndedPhases::kept) << "the first seconds are over";
    EXPECT_EQ(at_sample(10, true), EndedPhases::dropped);
}

}  // namespace
}  // namespace dp
