// SPDX-License-Identifier: Apache-2.0
//
// Who has not come to PyTorch's store is named while the others wait there, and nobody else is.
#include "engine/torch_arrivals.hpp"

#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

using Lines = std::vector<std::string>;

// Three nodes of two ranks each, started, that know nothing of libdp.
struct TorchArrivalsTest : testing::Test {
    Simulation step{3, 2};
    void SetUp() override {
        step.join_all();
        for (uint32_t rank = 0; rank < 6; ++rank) step.start(rank);
    }
    void come_from(const std::vector<uint32_t>& nodes) {
        for (uint32_t node : nodes) step.open_torch_store(node);
    }
    // In which the step's own deadline for hellos passes, too.
    Lines said_within(Time time) {
        step.log.clear();
        step.pass(time);
        return step.log;
    }
};

TEST_F(TorchArrivalsTest, TheMissingAreNamedByNodeUntilTheyCome) {
    step.pass(Time(3000));
    come_from({0, 1, 0});
    EXPECT_EQ(said_within(Time(4900)), Lines{});
    EXPECT_EQ(said_within(Time(200)), (Lines{"3 of 6 ranks have opened PyTorch's store after 5 s; missing: "
                                             "gpu1: 1 of ranks 2-3; gpu2: ranks 4-5"}));
    come_from({2, 2});
    EXPECT_EQ(said_within(Time(9800)), Lines{});
    EXPECT_EQ(said_within(Time(200)), (Lines{"5 of 6 ranks have opened PyTorch's store after 15 s; missing: "
                                             "gpu1: 1 of ranks 2-3"}));
    come_from({1});
    EXPECT_EQ(said_within(Time(60000)), Lines{});
}

TEST_F(TorchArrivalsTest, OnesOfANodeAreNotThoseOfAnother) {
    come_from({0, 0, 0, 0, 0, 0, 0});  // launchers whose children come, say
    EXPECT_EQ(said_within(Time(6000)), (Lines{"2 of 6 ranks have opened PyTorch's store after 5 s; missing: "
                                              "gpu1: ranks 2-3; gpu2: ranks 4-5"}));
}

TEST_F(TorchArrivalsTest, NobodyIsMissedWhereNobodyHasCome) {
    EXPECT_EQ(said_within(Time(60000)), Lines{});
}

TEST_F(TorchArrivalsTest, NobodyIsMissedWhoCameOrEnded) {
    come_from({0, 0, 1, 1, 2});
    step.exit(5, 0);
    EXPECT_EQ(said_within(Time(60000)), Lines{});
}

TEST_F(TorchArrivalsTest, NobodyIsMissedInAStepThatEnds) {
    come_from({0});
    step.lose_launcher(2);
    step.pass(Time(1000));
    EXPECT_EQ(said_within(Time(60000)), Lines{});
}

TEST(TorchArrivalsOnOneNode, WakeTheBrokerInTime) {
    Simulation step(1, 2);
    step.join_all();
    for (uint32_t rank : {0, 1}) step.start(rank);
    EXPECT_EQ(step.broker->next_deadline(), std::nullopt);
    step.open_torch_store(0);
    EXPECT_EQ(step.broker->next_deadline(), step.now + kFirstLateNotice);
    step.open_torch_store(0);
    step.pass(kFirstLateNotice);
    EXPECT_EQ(step.broker->next_deadline(), std::nullopt);
}

}  // namespace
}  // namespace dp
