// SPDX-License-Identifier: Apache-2.0
#include "engine/step_clock.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

TEST(StepClock, StandsStillWhileTheDaemonDoes) {
    StepClock clock(Time(1000));
    EXPECT_EQ(clock.at(Time(1500)), Time(1500));
    EXPECT_EQ(clock.at(Time(4400)), Time(4400));    // a slow machine
    EXPECT_EQ(clock.at(Time(604400)), Time(4400));  // ten minutes of scontrol suspend
    EXPECT_EQ(clock.at(Time(604500)), Time(4500));  // and on it goes
    EXPECT_EQ(clock.at(Time(607499)), Time(7499));  // just within
    EXPECT_EQ(clock.at(Time(610499)), Time(7499));  // just over
    EXPECT_EQ(clock.at(Time(610499)), Time(7499));
    EXPECT_EQ(clock.at(Time(610500)), Time(7500));
}

}  // namespace
}  // namespace dp
