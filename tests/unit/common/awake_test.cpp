// SPDX-License-Identifier: Apache-2.0
#include "base/awake.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dp {
namespace {

using std::chrono::milliseconds;

TEST(Awake, WaitsInSlicesUntilTheTimeIsUpOrItIsThere) {
    const struct {
        milliseconds time;
        size_t there_at;  // in which slice; 0: never
        std::vector<int> slices;
    } cases[] = {
        {milliseconds(0), 0, {0}},
        {milliseconds(0), 1, {0}},
        {milliseconds(300), 0, {300}},
        {milliseconds(1000), 0, {1000}},
        {milliseconds(2500), 0, {1000, 1000, 500}},
        {milliseconds(2500), 2, {1000, 1000}},
    };
    for (const auto& c : cases) {
        std::vector<int> slices;
        const bool there = wait_awake(c.time, [&](milliseconds slice) {
            slices.push_back(static_cast<int>(slice.count()));
            return slices.size() == c.there_at;
        });
        EXPECT_EQ(slices, c.slices);
        EXPECT_EQ(there, c.there_at != 0);
    }
}

TEST(Awake, ASliceInWhichTheProcessWasStoppedDoesNotCount) {
    milliseconds clock(0);
    int slices = 0;
    // Ten minutes of scontrol suspend in the second of three slices.
    EXPECT_FALSE(wait_awake(
        milliseconds(3000),
        [&](milliseconds slice) {
            clock += ++slices == 2 ? milliseconds(600000) : slice;
            return false;
        },
        [&] { return clock; }));
    EXPECT_EQ(slices, 4);
}

TEST(AwakeClock, StandsStillWhileItsProcessDoes) {
    AwakeClock clock(milliseconds(1000));
    const struct {
        int steady;
        int lived;
    } steps[] = {
        {1500, 1500},   {4400, 4400},    // a slow machine
        {604400, 4400},                  // ten minutes of scontrol suspend
        {604500, 4500}, {607499, 7499},  // just within
        {610499, 7499}, {610499, 7499}, {610500, 7500},
    };
    for (const auto& step : steps)
        EXPECT_EQ(clock.at(milliseconds(step.steady)), milliseconds(step.lived)) << step.steady;
}

}  // namespace
}  // namespace dp
