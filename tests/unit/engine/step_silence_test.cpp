// SPDX-License-Identifier: Apache-2.0
//
// Nodes of a step that say nothing for a while, and ranks that are stopped: named, and left alone.
#include <gtest/gtest.h>

#include <csignal>

#include "simulation.hpp"

namespace dp {
namespace {

TEST(Silence, OfANodeIsNamedWithinASecondAndTakenBack) {
    Simulation s(3, 2);
    s.join_all();
    s.hello_all();
    s.pass(Time(5000));
    EXPECT_TRUE(s.log.empty()) << s.log.front();
    s.frozen = {1};
    s.pass(Time(1000));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0],
              "node gpu1 (ranks 2-3) has been silent for 800 ms: network, daemon or node stands still; lost "
              "after 30 s");
    s.pass(Time(3000));
    s.frozen.clear();
    s.pass(Time(300));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "node gpu1 (ranks 2-3) speaks again, after 4 s");
    s.pass(Time(60000));
    EXPECT_EQ(s.log.size(), 2u);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.aborted, "");
}

TEST(Silence, OfANodeForTooLongEndsTheStep) {
    Simulation s(3, 2);
    s.join_all();
    s.hello_all();
    s.frozen = {1};
    s.pass(Time(29000));
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.aborted, "");
    s.pass(Time(2000));
    EXPECT_TRUE(s.logged("node gpu1 (ranks 2-3) is lost: silent for 30 s; ending the step"));
    EXPECT_EQ(s.ranks[5].aborted, "node gpu1 (ranks 2-3) is lost: silent for 30 s");
    EXPECT_TRUE(s.broker->leaves_ranks_behind());
}

TEST(Silence, OfTheBrokerIsSaidByOneNodeAndEndsTheOthersRanks) {
    Simulation s(3, 2);
    s.join_all();
    s.hello_all();
    s.frozen = {0};
    s.pass(Time(1000));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0].find("the rendezvous daemon on gpu0 has been silent for 800 ms"), 0u);
    s.frozen.clear();
    s.pass(Time(300));
    EXPECT_TRUE(s.logged("the rendezvous daemon on gpu0 speaks again, after "));
    s.frozen = {0};
    s.pass(Time(31000));
    for (uint32_t rank = 2; rank < 6; ++rank)
        EXPECT_NE(
            s.ranks[rank].aborted.find("lost the rendezvous daemon on gpu0: it has been silent for 30 s"),
            std::string::npos);
}

TEST(Silence, AStepThatWasSuspendedAsAWholeGoesOn) {
    Simulation s(3, 2);
    s.join_all();
    s.hello_all();
    s.pass(Time(1000));
    s.now += Time(600000);  // nobody's clock was looked at
    s.pass(Time(5000));
    EXPECT_TRUE(s.log.empty()) << s.log.front();
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.aborted, "");
}

TEST(Stopped, RanksAreNamedTogetherAndLeftAlone) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    for (uint32_t rank : {2u, 3u}) s.look(rank, true);
    s.pass(Time(1000));
    EXPECT_TRUE(s.log.empty()) << "once may be a step that is being resumed";
    for (int i = 0; i < 3; ++i) {
        for (uint32_t rank : {2u, 3u}) s.look(rank, true);
        s.pass(Time(1000));
    }
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0],
              "ranks 2-3 on gpu1 stopped by a signal (SIGSTOP, scontrol suspend, a debugger?); left alone");
    s.look(2, false);
    s.pass(Time(200));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "rank 2 on gpu1 going on");
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.aborted, "");
}

}  // namespace
}  // namespace dp
