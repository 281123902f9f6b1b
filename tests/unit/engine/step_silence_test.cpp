// SPDX-License-Identifier: Apache-2.0
//
// Nodes of a step that say nothing for a while, and ranks that are stopped: named, and left alone.
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <random>

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
    EXPECT_EQ(
        s.log[0],
        "node gpu1 (ranks 2-3) has been silent for 800 ms: its network, daemon or node may be down; lost "
        "after 30 s");
    s.pass(Time(3000));
    s.frozen.clear();
    s.pass(Time(300));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "node gpu1 (ranks 2-3) responds again after 4 s");
    s.pass(Time(60000));
    EXPECT_EQ(s.log.size(), 2u);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.aborted, "");
}

// A switch that stalls: the last heartbeats of those behind it are not of the same moment.
TEST(Silence, OfManyNodesIsOneLineWithTheirNumber) {
    Simulation s(10, 2);
    for (uint32_t node = 0; node < 10; ++node) {
        s.join(node);
        s.pass(Time(10), Time(10));
    }
    s.hello_all();
    s.pass(Time(3000), Time(10));
    s.frozen = {3, 4, 5, 6, 7};
    s.pass(Time(1000), Time(10));
    ASSERT_EQ(s.log.size(), 1u) << s.log[1];
    EXPECT_EQ(s.log[0],
              "5 nodes (gpu[3-7], ranks 6-15) have been silent for 800 ms or longer: their network, daemons "
              "or nodes may be down; lost after 30 s");
    s.pass(Time(2000), Time(10));
    s.frozen.clear();
    s.pass(Time(400), Time(10));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "5 nodes (gpu[3-7], ranks 6-15) respond again after up to 3 s");
}

// An overloaded machine: nodes fall silent and speak again all the time, and meanwhile a rank is killed.
TEST(Silence, ThatComesAndGoesEverywhereIsAFewLinesAndHidesNoDeath) {
    for (const bool report : {false, true}) {
        Simulation s(64, 16, Time(10000), false, report ? FailureAction::report : FailureAction::abort);
        s.join_all();
        s.hello_all();
        std::mt19937 random(7);
        std::deque<uint32_t> silent;
        const auto flap = [&](Time time) {
            for (const Time end = s.now + time; s.now < end; s.pass(Time(100))) {
                const uint32_t node = 1 + random() % 63;
                if (node != 32 && s.frozen.insert(node).second) silent.push_back(node);
                if (silent.size() < 15) continue;
                s.frozen.erase(silent.front());
                silent.pop_front();
            }
        };
        flap(Time(30000));
        EXPECT_GT(s.log.size(), 1u);
        EXPECT_LE(s.log.size(), 20u);
        const size_t before = s.log.size();
        s.exit(32 * 16 + 5, SIGKILL);
        ASSERT_EQ(s.log.size(), before + 1);
        EXPECT_EQ(s.log.back().find("rank 517 on gpu32 was killed by signal 9 (SIGKILL)"), 0u)
            << s.log.back();
        flap(Time(20000));
        EXPECT_LE(s.log.size(), before + (report ? 10 : 1));
    }
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
    s.pass(kFirstNoticePause);
    EXPECT_TRUE(s.logged("the rendezvous daemon on gpu0 responds again after "));
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
    EXPECT_EQ(
        s.log[0],
        "ranks 2-3 on gpu1 were stopped by a signal (SIGSTOP, scontrol suspend, a debugger?); not killed");
    s.look(2, false);
    s.pass(Time(200));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "rank 2 on gpu1 continues");
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.aborted, "");
}

}  // namespace
}  // namespace dp
