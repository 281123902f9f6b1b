// SPDX-License-Identifier: Apache-2.0
#include "libdp/events.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dp {
namespace {

TEST(Events, ReachEverybodyInOrderAndLateComersToo) {
    Events events;
    std::vector<std::string> first;
    std::vector<std::string> late;
    events.add([&](const StepEvent& e) { first.push_back(e.reason); });
    events.happen({DP_EVENT_DEATHS, "rank 1", {1}});
    events.add([&](const StepEvent& e) { late.push_back(e.reason); });
    EXPECT_EQ(late, std::vector<std::string>{"rank 1"});
    events.happen({DP_EVENT_DEATHS, "rank 2", {2}});
    EXPECT_EQ(first, (std::vector<std::string>{"rank 1", "rank 2"}));
    EXPECT_EQ(late, first);
}

TEST(Events, NothingIsNewsAfterTheEnd) {
    Events events;
    std::vector<std::string> heard;
    events.add([&](const StepEvent& e) { heard.push_back(e.reason); });
    events.happen({DP_EVENT_ENDING, "rank 5", {5}});
    events.happen({DP_EVENT_LOST, "the daemon is gone", {}});
    events.happen({DP_EVENT_DEATHS, "rank 6", {6}});
    EXPECT_EQ(heard, std::vector<std::string>{"rank 5"});
}

TEST(Events, AreForgottenAlsoFromInside) {
    Events events;
    int heard = 0;
    uint64_t watch = 0;
    watch = events.add([&](const StepEvent&) {
        ++heard;
        events.forget(watch);
    });
    events.happen({DP_EVENT_DEATHS, "rank 1", {1}});
    events.happen({DP_EVENT_DEATHS, "rank 2", {2}});
    EXPECT_EQ(heard, 1);
}

}  // namespace
}  // namespace dp
