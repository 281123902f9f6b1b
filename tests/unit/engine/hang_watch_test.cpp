// SPDX-License-Identifier: Apache-2.0
//
// A step whose ranks have all stopped to make progress: who is the cause, and what becomes of the step.
#include "engine/hang_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

using testing::ElementsAre;

const std::string kBeginning = "no progress for 60 s (--dp-hang-timeout): ";
const std::string kAllReduce = "all_reduce (distributed_c10d.py:2501)";
const std::string kLoad = "load_batch (train.py:88)";

Settings settings_of(FailureAction action) {
    Settings more;
    more.on_failure = action;
    more.hang_timeout_seconds = 60;
    return more;
}

Simulation running(FailureAction action = FailureAction::report, uint32_t nodes = 2,
                   const Settings& more = {}) {
    Simulation s(nodes, 2, Time(600000), false, action, merge(settings_of(action), more));
    s.join_all();
    for (uint32_t rank = 0; rank < s.ranks.size(); ++rank) s.start(rank);
    s.hello_all();
    s.pass(Time(1000));
    s.log.clear();
    return s;
}

void wait_in_all_reduce(Simulation& s, std::initializer_list<uint32_t> ranks) {
    for (const uint32_t rank : ranks) s.still(rank, kAllReduce, true);
}

TEST(HangWatch, TheCauseIsWhoDoesNotWaitWhileTheOthersDo) {
    Simulation s = running();
    wait_in_all_reduce(s, {0, 1, 2});
    s.pass(Time(600000), Time(1000));
    EXPECT_TRUE(s.log.empty()) << "rank 3 may be working, not: " << s.log.front();
    s.still(3, kLoad, false);
    s.pass(Time(100));
    EXPECT_THAT(
        s.log, ElementsAre(kBeginning + "rank 3 on gpu1 is in " + kLoad + "; ranks 0-2 on gpu[0-1] wait in " +
                           kAllReduce + "; the step goes on (--dp-on-failure=report)"));
}

TEST(HangWatch, TheNcclOfTheCauseIsAsked) {
    for (const auto action : {FailureAction::report, FailureAction::abort}) {
        Settings more;
        more.nccl_debug = NcclDebug{"on"};
        Simulation s = running(action, 2, more);
        wait_in_all_reduce(s, {0, 1, 2});
        s.still(3, kLoad, false);
        s.pass(Time(100));
        s.warn({"(14:02:11, /nccl.3): NET/IB : status=12"});
        ASSERT_EQ(s.log.size(), 2u);
        EXPECT_EQ(s.log[1], "rank 3 on gpu1: last NCCL warning (14:02:11, /nccl.3): NET/IB : status=12");
    }
}

// A broken network makes all wait, and some of them know why.
TEST(HangWatch, WhereNobodyIsTheCauseTheNcclOfAllIsAsked) {
    Settings more;
    more.nccl_debug = NcclDebug{"on"};
    Simulation s = running(FailureAction::abort, 3, more);
    wait_in_all_reduce(s, {0, 1, 2, 3, 4, 5});
    s.pass(Time(100));
    s.warn({"", "why", "why", "why", "why", "why"});
    EXPECT_EQ(s.log.size(), 1 + kMostNcclWarnings);
    EXPECT_EQ(s.log[1], "rank 1 on gpu0: last NCCL warning why");
}

TEST(HangWatch, EachHangIsToldOnceAndSoIsItsEnd) {
    Simulation s = running();
    wait_in_all_reduce(s, {0, 1, 2});
    s.still(3, kLoad, false);
    s.still(3, kLoad, false);
    s.pass(Time(5000));
    ASSERT_EQ(s.log.size(), 1u);
    s.moves(3);
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1], "rank 3 on gpu1 moves again, after 65 s without progress");
    for (const uint32_t rank : {0u, 1u, 2u}) s.moves(rank);
    s.pass(Time(100));
    EXPECT_EQ(s.log.size(), 2u);
    wait_in_all_reduce(s, {1, 2, 3});
    s.still(0, kLoad, false);
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 3u);
    EXPECT_THAT(s.log[2], testing::StartsWith(kBeginning + "rank 0 on gpu0 is in " + kLoad));
}

TEST(HangWatch, SeveralCausesAreNamedByPlace) {
    Simulation s = running(FailureAction::report, 4);
    wait_in_all_reduce(s, {0, 1, 2, 3});
    s.still(4, kLoad, false);
    s.still(5, "sleep (time.py:1)", false);
    s.still(6, kLoad, false);
    s.still(7, kLoad, false);
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_THAT(s.log[0], testing::StartsWith(
                              kBeginning + "ranks 4,6-7 on gpu[2-3] are in " + kLoad +
                              "; rank 5 on gpu2 is in sleep (time.py:1); ranks 0-3 on gpu[0-1] wait in "));
}

TEST(HangWatch, WhoWaitsElsewhereThanMostIsTheCause) {
    Simulation s = running();
    wait_in_all_reduce(s, {0, 1, 3});
    s.still(2, "broadcast (distributed_c10d.py:2000)", true);
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_THAT(s.log[0], testing::StartsWith(
                              kBeginning +
                              "rank 2 on gpu1 waits in broadcast (distributed_c10d.py:2000); ranks 0-1,3"));
}

TEST(HangWatch, WhoHasEndedIsTheCauseIfAllOthersStillWait) {
    Simulation s = running();
    wait_in_all_reduce(s, {0, 1, 2});
    s.goodbye(3);
    s.exit(3, 0);
    s.pass(Time(59000), Time(1000));
    EXPECT_TRUE(s.log.empty()) << "they may be about to end, too, not: " << s.log.front();
    s.pass(Time(2000));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0], kBeginning +
                            "rank 3 on gpu1 ended before the others; ranks 0-2 on gpu[0-1] wait in " +
                            kAllReduce + "; the step goes on (--dp-on-failure=report)");
}

TEST(HangWatch, RanksThatEndOneAfterTheOtherDoNotHang) {
    Simulation s = running();
    wait_in_all_reduce(s, {0, 1, 2});
    for (const uint32_t rank : {3u, 2u, 1u}) {
        s.goodbye(rank);
        s.exit(rank, 0);
        s.pass(Time(40000), Time(1000));
    }
    s.moves(0);
    s.pass(Time(100000), Time(1000));
    EXPECT_TRUE(s.log.empty()) << s.log.front();
}

TEST(HangWatch, NobodyIsAccusedWhereTheRanksDoNotTell) {
    {
        Simulation s = running();
        wait_in_all_reduce(s, {0, 1, 2, 3});
        s.pass(Time(100));
        ASSERT_EQ(s.log.size(), 1u);
        EXPECT_EQ(s.log[0], kBeginning +
                                "which rank is the cause cannot be told: ranks 0-3 on gpu[0-1] wait in " +
                                kAllReduce + "; the step goes on (--dp-on-failure=report)");
    }
    Simulation s = running();
    for (const uint32_t rank : {0u, 1u}) s.still(rank, "recv (distributed_c10d.py:1)", true);
    for (const uint32_t rank : {2u, 3u}) s.still(rank, "send (distributed_c10d.py:2)", true);
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_THAT(s.log[0],
                testing::HasSubstr("which rank is the cause cannot be told: ranks 0-1 on gpu0 wait in recv"));
}

TEST(HangWatch, WithAbortTheStepEnds) {
    Simulation s = running(FailureAction::abort);
    wait_in_all_reduce(s, {0, 1, 2});
    s.still(3, kLoad, false);
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_THAT(s.log[0], testing::EndsWith("; ending the step"));
    for (const auto& rank : s.ranks)
        EXPECT_THAT(rank.aborted, testing::StartsWith(kBeginning + "rank 3 on gpu1 is in " + kLoad));
}

TEST(HangWatch, WithRestartTheNextGenerationBegins) {
    Simulation s = running(FailureAction::restart);
    wait_in_all_reduce(s, {0, 1, 2});
    s.still(3, kLoad, false);
    s.pass(Time(100));
    EXPECT_TRUE(s.log.empty()) << s.log.front();
    for (uint32_t rank = 0; rank < 4; ++rank) s.exit(rank, SIGTERM);
    for (const uint32_t node : {0u, 1u}) s.clear(node);
    s.pass(Time(100));
    s.start_all();
    s.pass(Time(100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_THAT(s.log[0], testing::StartsWith(kBeginning + "rank 3 on gpu1 is in " + kLoad));
    EXPECT_THAT(s.log[0], testing::HasSubstr("; generation 1 began "));
}

}  // namespace
}  // namespace dp
