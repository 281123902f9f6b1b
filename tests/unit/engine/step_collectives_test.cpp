// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a step that meet: unique ids, barriers, values; who is late, and what makes no sense.
#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "dp/dp.h"
#include "simulation.hpp"

namespace dp {
namespace {

TEST(UniqueId, IsTheRootsForAllAndComesInOneMessageANode) {
    Simulation s(4, 8);
    s.join_all();
    s.hello_all();
    const std::string id(128, 'i');
    const size_t before = s.messages_to_nodes;
    for (uint32_t rank = 31; rank > 0; --rank) s.arrive(rank, 9, "world", {}, "not the root's");
    EXPECT_EQ(s.messages_to_nodes, before);
    s.arrive(0, 9, "world", {}, id);
    EXPECT_EQ(s.messages_to_nodes, before + 4);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.replies.at(9).value(), id);
}

TEST(UniqueId, ANodesHellosAndItsArrivalAreOneMessageEach) {
    Simulation s(4, 8);
    s.join_all();
    const size_t before = s.messages_to_broker;
    for (uint32_t rank = 0; rank < 32; ++rank) {
        s.hello(rank);
        s.arrive(rank, 1, "world", {}, rank == 0 ? "id" : "");
    }
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.replies.at(1).value(), "id");
    EXPECT_EQ(s.messages_to_broker, before + 8);
}

TEST(UniqueId, SeveralRootsAreSpreadOverTheNodesAndComeInTheirOrder) {
    Simulation s(4, 8);
    s.join_all();
    s.hello_all();
    for (uint32_t rank = 31; rank < 32; --rank)
        s.arrive(rank, 1, "world", {}, "id of " + std::to_string(rank) + ";", 0, Time(5000), 4);
    for (const auto& rank : s.ranks)
        EXPECT_EQ(rank.replies.at(1).value(), "id of 0;id of 8;id of 16;id of 24;");
}

TEST(UniqueId, MembersThatDisagreeAboutTheRootsAreTold) {
    Simulation s(2, 1);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1, "world", {}, "id", 0, Time(5000), 1);
    s.arrive(1, 1, "world", {}, "id", 0, Time(5000), 2);
    EXPECT_EQ(s.ranks[1].replies.at(1).error(),
              "group \"world\": its members disagree about how many roots it has (1 and 2)");
    s.arrive(1, 2, "world", {}, "id", 7, Time(5000), 3);
    EXPECT_EQ(s.ranks[1].replies.at(2).error(), "group \"world\" has 2 members and cannot have 3 roots");
}

TEST(UniqueId, GroupsDoNotMix) {
    Simulation s(2, 4);
    s.join_all();
    s.hello_all();
    for (uint32_t rank = 0; rank < 8; ++rank) {
        std::vector<uint32_t> even = {0, 2, 4, 6};
        std::vector<uint32_t> odd = {1, 3, 5, 7};
        s.arrive(rank, 1, "data", rank % 2 ? odd : even, "id of " + std::to_string(rank));
    }
    for (uint32_t rank = 0; rank < 8; ++rank)
        EXPECT_EQ(s.ranks[rank].replies.at(1).value(), rank % 2 ? "id of 1" : "id of 0");
}

TEST(Collective, WhatMakesNoSenseIsRefused) {
    Simulation s(1, 4);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1, "g", {1, 2});     // not a member
    s.arrive(0, 2, "g", {0, 9});     // no such rank
    s.arrive(0, 3, "g", {2, 0});     // not ascending
    s.arrive(0, 4, "g", {0, 0, 1});  // twice
    s.arrive(0, 5, std::string(300, 'g'));
    s.pass(2 * kArrivalBatch);
    for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(s.ranks[0].replies[id].status(), wire::INVALID) << id;
    EXPECT_EQ(s.ranks[0].replies[5].status(), wire::TOO_LARGE);
}

// A relay wraps what a rank sends, and collects what its ranks bring: neither may grow over a frame.
TEST(Collective, WhatIsTooLargeFailsTheCallAndNotTheNode) {
    Simulation s(2, 4);
    s.join_all();
    s.hello_all();
    wire::Request request;
    request.mutable_set()->set_key("k");
    request.mutable_set()->set_value(std::string(kMaxFrame - 50, 'x'));
    s.request(4, 1, request);
    EXPECT_EQ(s.ranks[4].replies[1].status(), wire::TOO_LARGE);
    s.arrive(4, 2, "world", {}, std::string(DP_MAX_VALUE_BYTES + 1, 'x'));
    EXPECT_EQ(s.ranks[4].replies[2].status(), wire::TOO_LARGE);
    wire::Request agree;
    for (int i = 0; i <= kMaxFacts; ++i) agree.mutable_arrive()->add_facts();
    s.request(4, 4, agree);
    EXPECT_EQ(s.ranks[4].replies[4].status(), wire::TOO_LARGE);
    s.arrive(4, 5, std::string(kMaxGroupName + 1, 'g'));
    EXPECT_EQ(s.ranks[4].replies[5].status(), wire::TOO_LARGE);
    for (uint32_t rank = 4; rank < 8; ++rank)
        s.arrive(rank, 3, "world", {}, std::string(DP_MAX_VALUE_BYTES, 'x'));
    for (uint32_t rank = 0; rank < 4; ++rank) s.arrive(rank, 3);
    EXPECT_LE(s.largest_to_broker, kMaxFrame);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.replies.at(3).status(), wire::OK);
}

TEST(Collective, NamesWhoIsMissingAndWhy) {
    Simulation s(2, 2);
    s.join_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.arrive(0, 1, "world", {}, "", 0, Time(2000));
    s.pass(Time(2100));
    const std::string error = s.ranks[0].replies[1].error();
    EXPECT_EQ(s.ranks[0].replies[1].status(), wire::TIMEOUT);
    EXPECT_EQ(
        error,
        "1 of 4 ranks arrived in group \"world\" within 2 s; missing: gpu[0-1]: ranks 1-2 said hello, has "
        "not arrived; "
        "gpu1: rank 3 started, no hello (pid 1003)");
}

TEST(Collective, WhoComesAfterTheOthersHaveGivenUpDoesNotWait) {
    Simulation s(2, 1);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1, "world", {}, "", 0, Time(2000));
    s.pass(Time(2100));
    s.arrive(1, 1);
    s.pass(kArrivalBatch);
    ASSERT_TRUE(s.ranks[1].replies.contains(1)) << "it waits for its own deadline";
    EXPECT_EQ(s.ranks[1].replies[1].status(), wire::TIMEOUT);
    EXPECT_EQ(s.ranks[1].replies[1].error(),
              "too late, the others have given up: " + s.ranks[0].replies[1].error());
    s.arrive(1, 2, "another");
    s.arrive(0, 2, "another");
    for (uint32_t rank : {0, 1}) s.arrive(rank, 3, "world", {}, "", 1);
    s.pass(kArrivalBatch);
    for (uint32_t rank : {0, 1})
        for (uint64_t id : {2, 3}) EXPECT_EQ(s.ranks[rank].replies[id].status(), wire::OK);
}

TEST(Collective, DoesNotWaitForARankThatHasEnded) {
    Simulation s(2, 1);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.goodbye(1);
    s.exit(1, 0);
    s.pass(kExitBatch);
    EXPECT_EQ(s.ranks[0].replies[1].status(), wire::ABORTED);
    EXPECT_NE(s.ranks[0].replies[1].error().find("cannot complete; gpu1: rank 1 exited with code 0"),
              std::string::npos);
    s.arrive(0, 2, "world", {}, "", 1);  // nor does a later one
    EXPECT_EQ(s.ranks[0].replies[2].status(), wire::ABORTED);
    EXPECT_TRUE(s.log.empty());
}

// On a slow machine a hello may take longer than the calls after it, whose deadlines then come before the step's.
TEST(Late, ACallEndsWithTheStepThatNamesTheRankAndNotJustBefore) {
    Simulation s(2, 2, Time(3000));
    s.join_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.arrive(0, 1, "world", {}, "", 0, Time(2900));
    s.arrive(1, 1, "another", {}, "", 0, Time(1000));
    s.pass(Time(1100));
    EXPECT_EQ(s.ranks[1].replies[1].status(), wire::TIMEOUT);
    s.pass(Time(1850));
    EXPECT_FALSE(s.ranks[0].replies.contains(1)) << s.ranks[0].replies[1].error();
    s.pass(Time(150));
    EXPECT_TRUE(s.logged("3 of 4 ranks said hello within 3 s (--dp-timeout); missing: gpu1: rank 3 started"));
}

TEST(Late, RanksAreNamedWhileOneWaitsAndEndTheStepAtTheDeadline) {
    Simulation s(2, 2, Time(60000));
    const Time began = s.now;
    s.join_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.pass(Time(4900));
    EXPECT_TRUE(s.log.empty());
    s.pass(Time(200));
    EXPECT_TRUE(
        s.logged("3 of 4 ranks said hello after 5 s; missing: gpu1: rank 3 started, no hello (pid 1003)"));
    // Then each time after twice as long: a wait of minutes is not told sixty times.
    for (const int64_t at : {15, 35}) {
        const size_t before = s.log.size();
        s.pass(began + Time(at * 1000 - 100) - s.now);
        EXPECT_EQ(s.log.size(), before);
        s.pass(Time(200));
        EXPECT_EQ(s.log.size(), before + 1);
    }
    s.pass(began + Time(60100) - s.now);
    EXPECT_EQ(s.log.size(), 4u);
    EXPECT_TRUE(
        s.logged("3 of 4 ranks said hello within 60 s (--dp-timeout); missing: gpu1: rank 3 started"));
    s.pass(Time(2000));
    for (const auto& sent : s.signals) {
        ASSERT_EQ(sent.size(), 2u);
        EXPECT_EQ(sent[0].second, SIGTERM);
        EXPECT_EQ(sent[1].second, SIGKILL);
    }
}

// The ranks' own calls have the same deadline: they hear of the rank that never started, not of a collective
// that failed.
TEST(Late, TheStepsDeadlineComesBeforeThatOfTheCallsThatWait) {
    Simulation s(2, 2);
    s.join_all();
    s.hello(2);
    s.arrive(2, 1, "world", {}, "", 0, Time(10000));
    s.pass(Time(50));  // longer than a node keeps its hellos together
    for (uint32_t rank = 0; rank < 2; ++rank) {
        s.hello(rank);
        s.arrive(rank, 1, "world", {}, "", 0, Time(10000));
    }
    s.pass(Time(10100));
    EXPECT_TRUE(
        s.logged("3 of 4 ranks said hello within 10 s (--dp-timeout); missing: gpu1: rank 3 not started"));
    for (uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_NE(s.ranks[rank].aborted, "") << rank;
        EXPECT_FALSE(s.ranks[rank].replies.contains(1)) << rank;
    }
}

TEST(Late, NodesThatHaveNotConnectedAreNamedWhileOneWaits) {
    Simulation s(4, 2, Time(60000));
    s.join(0);
    s.join(1);
    s.pass(Time(5100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(
        s.log[0],
        "4 of 8 ranks are connected after 5 s; missing: gpu[2-3]: ranks 4-7 not started (not connected: no "
        "plugin, no "
        "daemon or no network there)");
}

TEST(Late, ProgramsThatNeverOpenTheWorldAreLeftAlone) {
    Simulation s(2, 2, Time(1000));
    s.join_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    s.pass(Time(100000));
    EXPECT_TRUE(s.log.empty());
    EXPECT_TRUE(s.signals[0].empty());
}

TEST(Collective, WhatALostNodesRanksWaitForIsNotSentThere) {
    Simulation s(2, 2, Time(10000), false, FailureAction::report);
    s.join_all();
    s.hello_all();
    s.arrive(2, 1, "tail", {2, 3});
    s.cut(1);
    s.pass(Time(1000));
    EXPECT_EQ(s.messages_to_nobody, 0u);
}

// Any order of start, hello, arrival and goodbye brings every collective to the same end.
TEST(Property, MeetingsEndForAllInAnyOrder) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const uint32_t nodes = 1 + random() % 4;
        const uint32_t per_node = 1 + random() % 4;
        Simulation s(nodes, per_node);
        const uint32_t world = nodes * per_node;
        const uint64_t rounds = 1 + random() % 5;
        std::vector<uint32_t> joined(nodes, 0);
        std::vector<uint64_t> step(world,
                                   0);  // 0: before hello; 1..rounds: waiting in that collective; then done
        auto ready = [&](uint32_t rank) {
            return step[rank] == 0 || (step[rank] <= rounds && s.ranks[rank].replies.contains(step[rank]));
        };
        for (uint32_t moves = 0; moves < 100000; ++moves) {
            const uint32_t rank = random() % world;
            if (uint32_t n = random() % nodes; !joined[n]) {
                joined[n] = 1;
                s.join(n);
            }
            if (!ready(rank)) continue;
            if (step[rank] == 0) s.hello(rank);
            if (++step[rank] <= rounds)
                s.arrive(rank, step[rank], "world", {}, "round " + std::to_string(step[rank]), step[rank]);
        }
        for (uint32_t rank = 0; rank < world; ++rank)
            for (uint64_t round = 1; round <= rounds; ++round) {
                ASSERT_TRUE(s.ranks[rank].replies.contains(round)) << "seed " << seed << " rank " << rank;
                EXPECT_EQ(s.ranks[rank].replies[round].value(), "round " + std::to_string(round));
            }
    }
}

}  // namespace
}  // namespace dp
