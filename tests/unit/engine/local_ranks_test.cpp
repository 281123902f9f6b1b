// SPDX-License-Identifier: Apache-2.0
#include "engine/local_ranks.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "engine/ending.hpp"

namespace dp {
namespace {

TEST(LocalRanks, AConnectionIsTheRanksThatSaidHelloOnIt) {
    LocalRanks ranks({4, 5});
    EXPECT_FALSE(ranks.rank_of(1));
    ranks.open(1, 5, 77);
    EXPECT_EQ(ranks.rank_of(1), 5u);
    EXPECT_EQ(ranks.connection_of(5), ConnectionId{1});
    EXPECT_FALSE(ranks.connection_of(4));
    EXPECT_FALSE(ranks.all_said_hello());
    ranks.open(2, 4, 77);
    EXPECT_TRUE(ranks.all_said_hello());
    ranks.close(1);
    EXPECT_FALSE(ranks.rank_of(1));
    EXPECT_FALSE(ranks.connection_of(5));
    EXPECT_TRUE(ranks.all_said_hello()) << "it has, once";
    ranks.refuse(3);
    EXPECT_TRUE(ranks.is_refused(3));
    ranks.close(3);
    EXPECT_FALSE(ranks.is_refused(3));
}

TEST(LocalRanks, AnExitIsTakenOnceAndTheFirstNewsOfItCounts) {
    LocalRanks ranks({4, 5});
    ranks.progress(5, 1200);
    ranks.exit(1, SIGKILL, false, Time(100));
    ranks.exit(1, 0, true, Time(110));
    EXPECT_EQ(ranks.next_deadline(), Time(100) + kExitGrace);
    EXPECT_TRUE(ranks.overdue(Time(99) + kExitGrace).empty());
    EXPECT_EQ(ranks.overdue(Time(100) + kExitGrace), std::vector<uint32_t>{5});
    const auto exit = ranks.take_exit(5);
    ASSERT_TRUE(exit);
    EXPECT_EQ(exit->status, SIGKILL);
    EXPECT_FALSE(exit->cancelled);
    EXPECT_EQ(exit->step, 1200u);
    EXPECT_FALSE(ranks.take_exit(5));
    EXPECT_FALSE(ranks.has_exits());
    ranks.exit(1, 0, false, Time(200));
    EXPECT_FALSE(ranks.has_exits());
}

TEST(LocalRanks, AnEarlierProgramsStepsAreNotTheNextOnes) {
    LocalRanks ranks({4});
    ranks.open(1, 4, 77);
    ranks.progress(4, 7);
    ranks.close(1);
    ranks.open(2, 4, 77);
    ranks.exit(0, 0, false, Time(0));
    EXPECT_FALSE(ranks.take_exit(4)->step);
}

TEST(LocalRanks, StoppedIsWhoWasSeenSoTwiceInARow) {
    LocalRanks ranks({4, 5});
    EXPECT_FALSE(ranks.look(0, true));
    EXPECT_FALSE(ranks.look(0, false));
    EXPECT_FALSE(ranks.look(0, true));
    EXPECT_EQ(ranks.look(0, true), true);
    EXPECT_FALSE(ranks.look(0, true));
    EXPECT_EQ(ranks.look(0, false), false);
    EXPECT_FALSE(ranks.look(2, true)) << "there is no such rank";
    ranks.exit(1, 0, false, Time(0));
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(ranks.look(1, true));
}

TEST(Termination, TermsAndThenKillsOnce) {
    Termination termination;
    EXPECT_FALSE(termination.abort());
    EXPECT_FALSE(termination.next_deadline());
    wire::Abort abort;
    abort.set_reason("rank 3 died");
    abort.set_term_after_ms(250);
    abort.set_kill_after_ms(1250);
    termination.begin(abort, Time(1000));
    ASSERT_TRUE(termination.abort());
    EXPECT_EQ(termination.abort()->reason(), "rank 3 died");
    EXPECT_EQ(termination.next_deadline(), Time(1250));
    EXPECT_FALSE(termination.signal(Time(1249)));
    EXPECT_EQ(termination.signal(Time(1250)), SIGTERM);
    EXPECT_FALSE(termination.signal(Time(1251)));
    EXPECT_EQ(termination.signal(Time(2250)), SIGKILL);
    EXPECT_FALSE(termination.next_deadline());
    EXPECT_TRUE(termination.abort());
}

}  // namespace
}  // namespace dp
