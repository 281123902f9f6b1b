// SPDX-License-Identifier: Apache-2.0
#include "engine/pending_arrivals.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

constexpr Time kTimeout{5000};

wire::Arrive meeting(const std::string& group = "world", std::vector<uint32_t> members = {},
                     uint64_t sequence = 0) {
    wire::Arrive out;
    out.set_group(group);
    for (uint32_t member : members) out.add_members(member);
    out.set_sequence(sequence);
    return out;
}

std::vector<uint32_t> ranks_in(const wire::NodeArrive& arrive) {
    std::vector<uint32_t> out;
    for (const auto& rank : arrive.ranks()) out.push_back(rank.rank());
    return out;
}

using Ranks = std::vector<uint32_t>;

TEST(PendingArrivals, TheRanksOfANodeTravelTogether) {
    PendingArrivals node({4, 5, 6, 7});
    EXPECT_FALSE(node.arrive({4, 1}, meeting(), Time(0), kTimeout));
    EXPECT_FALSE(node.arrive({7, 1}, meeting(), Time(1), kTimeout));
    EXPECT_FALSE(node.arrive({6, 1}, meeting(), Time(2), kTimeout));
    auto sent = node.arrive({5, 9}, meeting(), Time(3), kTimeout);
    ASSERT_TRUE(sent);
    EXPECT_EQ(ranks_in(*sent), (Ranks{4, 7, 6, 5}));
    EXPECT_EQ(sent->ranks(3).id(), 9u);
    EXPECT_EQ(sent->waited_ms(), 3);
    EXPECT_EQ(sent->timeout_ms(), kTimeout.count() - 3);
    EXPECT_FALSE(node.next_deadline());
}

TEST(PendingArrivals, OnlyTheMembersOfTheNodeAreWaitedFor) {
    PendingArrivals node({4, 5, 6, 7});
    EXPECT_FALSE(node.arrive({5, 1}, meeting("data", {1, 5, 7, 9}), Time(0), kTimeout));
    auto sent = node.arrive({7, 1}, meeting("data", {1, 5, 7, 9}), Time(0), kTimeout);
    ASSERT_TRUE(sent);
    EXPECT_EQ(ranks_in(*sent), (Ranks{5, 7}));
}

TEST(PendingArrivals, MeetingsAreKeptApart) {
    PendingArrivals node({0, 1});
    EXPECT_FALSE(node.arrive({0, 1}, meeting("a"), Time(0), kTimeout));
    EXPECT_FALSE(node.arrive({1, 1}, meeting("b"), Time(0), kTimeout));
    EXPECT_FALSE(node.arrive({0, 2}, meeting("a", {}, 1), Time(0), kTimeout));
    EXPECT_TRUE(node.arrive({1, 2}, meeting("a"), Time(0), kTimeout));
    EXPECT_TRUE(node.arrive({0, 3}, meeting("b"), Time(0), kTimeout));
}

TEST(PendingArrivals, WhereOneIsLateTheOthersAreAnnouncedAndItFollowsAtOnce) {
    PendingArrivals node({0, 1, 2});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(100), kTimeout));
    EXPECT_EQ(node.next_deadline(), Time(100) + kArrivalBatch);
    EXPECT_TRUE(node.expire(Time(100)).empty());
    auto sent = node.expire(Time(100) + kArrivalBatch);
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(ranks_in(sent[0]), (Ranks{0}));
    EXPECT_FALSE(node.next_deadline());
    auto second = node.arrive({2, 1}, meeting(), Time(500), kTimeout);
    ASSERT_TRUE(second);
    EXPECT_EQ(ranks_in(*second), (Ranks{2}));
    auto third = node.arrive({1, 1}, meeting(), Time(600), kTimeout);
    ASSERT_TRUE(third);
    EXPECT_EQ(ranks_in(*third), (Ranks{1}));
    EXPECT_EQ(third->timeout_ms(), kTimeout.count() - 500);  // the first one's counts
}

TEST(PendingArrivals, TheShortestTimeoutCounts) {
    PendingArrivals node({0, 1});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), Time(5000)));
    auto sent = node.arrive({1, 1}, meeting(), Time(10), Time(100));
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->timeout_ms(), 100);
}

TEST(PendingArrivals, NobodyWaitsForARankThatHasEnded) {
    PendingArrivals node({0, 1, 2});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), kTimeout));
    EXPECT_TRUE(node.give_up(1, Time(1)).empty());
    auto sent = node.arrive({2, 1}, meeting(), Time(2), kTimeout);
    ASSERT_TRUE(sent);
    EXPECT_EQ(ranks_in(*sent), (Ranks{0, 2}));
    // Nor for the next collective; and the last to end lets the others go.
    EXPECT_FALSE(node.arrive({0, 2}, meeting("world", {}, 1), Time(3), kTimeout));
    auto let_go = node.give_up(2, Time(4));
    ASSERT_EQ(let_go.size(), 1u);
    EXPECT_EQ(ranks_in(let_go[0]), (Ranks{0}));
}

TEST(PendingArrivals, WhatTheBrokerMustRefuseIsSentAtOnce) {
    PendingArrivals node({0, 1, 2});
    // No member.
    auto stranger = node.arrive({2, 1}, meeting("data", {0, 1}), Time(0), kTimeout);
    ASSERT_TRUE(stranger);
    EXPECT_EQ(ranks_in(*stranger), (Ranks{2}));
    // Twice; what was held goes along.
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), kTimeout));
    auto twice = node.arrive({0, 2}, meeting(), Time(0), kTimeout);
    ASSERT_TRUE(twice);
    EXPECT_EQ(ranks_in(*twice), (Ranks{0, 0}));
}

TEST(PendingArrivals, OneThatFailedIsForgottenAfterItsDeadline) {
    PendingArrivals node({0, 1});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), kTimeout));
    EXPECT_EQ(node.expire(Time(20)).size(), 1u);
    EXPECT_TRUE(node.expire(kTimeout).empty());
    // The same collective anew.
    EXPECT_FALSE(node.arrive({1, 1}, meeting(), kTimeout, kTimeout));
    EXPECT_EQ(node.next_deadline(), kTimeout + kArrivalBatch);
}

TEST(PendingArrivals, OneThatWasRefusedDoesNotEndItForTheOthers) {
    PendingArrivals node({0, 1, 2});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), kTimeout));
    auto twice = node.arrive({0, 2}, meeting(), Time(0), kTimeout);  // refused by the broker
    ASSERT_TRUE(twice);
    // Nobody waits for rank 0 a second time.
    ASSERT_TRUE(node.arrive({1, 1}, meeting(), Time(1), kTimeout));
    ASSERT_TRUE(node.arrive({2, 1}, meeting(), Time(2), kTimeout));
    EXPECT_FALSE(node.next_deadline());
}

TEST(PendingArrivals, WhoseProcessIsGoneMayComeAgain) {
    PendingArrivals node({0, 1, 2});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), kTimeout));
    EXPECT_FALSE(node.arrive({1, 1}, meeting(), Time(0), kTimeout));
    node.withdraw(0);
    EXPECT_FALSE(node.arrive({2, 1}, meeting(), Time(1), kTimeout));
    auto sent = node.arrive({0, 9}, meeting(), Time(2), kTimeout);
    ASSERT_TRUE(sent);
    EXPECT_EQ(ranks_in(*sent), (Ranks{1, 2, 0}));
    EXPECT_EQ(sent->ranks(2).id(), 9u);
    // Also if it was sent already: nobody waits for it a second time.
    EXPECT_FALSE(node.arrive({0, 1}, meeting("b"), Time(0), kTimeout));
    EXPECT_EQ(node.expire(kArrivalBatch).size(), 1u);
    node.withdraw(0);
    for (uint32_t rank : {1u, 2u, 0u})
        EXPECT_TRUE(node.arrive({rank, 2}, meeting("b"), Time(30), kTimeout)) << rank;
    EXPECT_FALSE(node.arrive({0, 3}, meeting("b"), Time(40), kTimeout)) << "it was complete";
}

TEST(PendingArrivals, AShortTimeoutIsNotSpentWaiting) {
    PendingArrivals node({0, 1});
    EXPECT_FALSE(node.arrive({0, 1}, meeting(), Time(0), Time(10)));
    EXPECT_EQ(node.next_deadline(), Time(5));
    EXPECT_EQ(node.expire(Time(5)).at(0).timeout_ms(), 5);
}

}  // namespace
}  // namespace dp
