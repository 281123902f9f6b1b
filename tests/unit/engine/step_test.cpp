// SPDX-License-Identifier: Apache-2.0
//
// The life of a step as the engine sees it, without a socket and with a clock of the test's.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "common/wait_status.hpp"
#include "dp/dp.h"
#include "simulation.hpp"

namespace dp {
namespace {

constexpr int kKilled = SIGKILL;  // as wait statuses
constexpr int kTermed = SIGTERM;
constexpr int kCode3 = 3 << 8;

wire::Request get(const std::string& key) {
    wire::Request r;
    r.mutable_get()->set_key(key);
    return r;
}
wire::Request set(const std::string& key, const std::string& value) {
    wire::Request r;
    r.mutable_set()->set_key(key);
    r.mutable_set()->set_value(value);
    return r;
}

TEST(Plan, OtherNodesGoAheadAndRankZerosNodeWaitsForAll) {
    Simulation s(3, 2);
    s.join(0);
    EXPECT_FALSE(s.plans[0]);
    s.join(2);
    EXPECT_TRUE(s.plans[2]);
    EXPECT_FALSE(s.plans[0]);
    s.join(1);
    ASSERT_TRUE(s.plans[0]);
    EXPECT_EQ(s.plans[0]->master_addr, "10.0.0.1");
    EXPECT_EQ(s.plans[2]->node_addr, "10.0.0.3");
    EXPECT_EQ(s.plans[0]->table, "");
}

TEST(Plan, TheTableNamesEveryRankWhereItWasAskedFor) {
    Simulation s(2, 2, Time(10000), true);
    s.join_all();
    for (const char* text : {"RANK", "gpu0", "gpu1", "10.0.0.2"})
        EXPECT_NE(s.plans[0]->table.find(text), std::string::npos) << text;
}

TEST(Plan, ANodeThatNeverComesIsNamedOnceAndEverybodyIsToldWhy) {
    Simulation s(3, 2);
    s.join(0);
    s.join(1);
    s.pass(Time(9900));
    EXPECT_FALSE(s.no_plans[0]);
    s.pass(Time(200));
    ASSERT_TRUE(s.no_plans[0]);
    EXPECT_NE(s.no_plans[0]->find("4 of 6 ranks are there within 10 s (--dp-timeout); missing: gpu2: ranks "
                                  "4-5 not started (not connected"),
              std::string::npos)
        << *s.no_plans[0];
    // The waiting tasks of rank 0's node print it; the broker does not print it again.
    EXPECT_FALSE(s.logged("4 of 6 ranks are there within 10 s"));
    // The node that could not connect gives up by itself.
    ASSERT_TRUE(s.no_plans[2]);
    EXPECT_NE(s.no_plans[2]->find("this node could not reach the rendezvous daemon on gpu0 within 10 s"),
              std::string::npos);
}

TEST(Plan, ANodeThatMetAnotherVersionSaysSoAtTheDeadline) {
    Simulation s(2, 2);
    s.join(0);
    s.nodes[1]->on_other_version(kProtocol + 1);
    s.pass(Time(10100));
    ASSERT_TRUE(s.no_plans[1]);
    EXPECT_NE(s.no_plans[1]->find("install the same version of slurm-dp on both"), std::string::npos);
    EXPECT_FALSE(s.logged("could not reach"));  // its waiting tasks say it
}

TEST(Hello, WelcomesTheRightRankOnce) {
    Simulation s(2, 2);
    s.join_all();
    s.hello(1);
    EXPECT_TRUE(s.ranks[1].welcome);
    // A second process of the same task.
    wire::FromRank again;
    again.mutable_hello()->set_protocol(kProtocol);
    again.mutable_hello()->set_rank(1);
    again.mutable_hello()->set_world_size(4);
    s.from_rank(0, again);
    EXPECT_FALSE(s.ranks[0].welcome);
    EXPECT_NE(s.ranks[0].replies[0].error().find("already rank 1"), std::string::npos);
    s.vanish(0);
    // A rank of another node.
    again.mutable_hello()->set_rank(3);
    s.from_rank(0, again);
    EXPECT_NE(s.ranks[0].replies[0].error().find("rank 3 is not on gpu0"), std::string::npos);
    s.vanish(0);
    // One that was told of another world.
    again.mutable_hello()->set_rank(0);
    again.mutable_hello()->set_world_size(8);
    s.from_rank(0, again);
    EXPECT_FALSE(s.ranks[0].welcome);
    EXPECT_EQ(
        s.ranks[0].replies[0].error(),
        "rank 0 believes in a world of 8, and this step has one of 4; something changed DP_WORLD_SIZE in its "
        "environment");
}

TEST(Hello, WhoWasRefusedIsNotHeardAgainAndTakesNobodysPlace) {
    Simulation s(1, 2);
    s.join_all();
    s.hello(1, kProtocol + 1);
    s.hello(1);
    EXPECT_FALSE(s.ranks[1].welcome);
    s.vanish(1);
    s.hello(1);
    EXPECT_TRUE(s.ranks[1].welcome);
}

TEST(Hello, TwiceOnOneConnectionIsOne) {
    Simulation s(1, 2);
    s.join_all();
    s.hello(1);
    const size_t messages = s.messages_to_broker;
    s.hello(1);
    s.pass(Time(100));
    EXPECT_LE(s.messages_to_broker, messages + 1);
    s.arrive(0, 1);
    EXPECT_FALSE(s.ranks[0].welcome);  // a call before any hello is not one of libdp's
    EXPECT_TRUE(s.ranks[0].replies.empty());
}

TEST(Hello, AnotherProtocolIsRefusedWithARemedy) {
    Simulation s(1, 1);
    s.join_all();
    s.hello(0, kProtocol + 1);
    EXPECT_FALSE(s.ranks[0].welcome);
    EXPECT_NE(s.ranks[0].replies[0].error().find("same version"), std::string::npos);
}

TEST(Hello, ATaskMayRunOneProgramAfterAnother) {
    Simulation s(1, 2);
    s.join_all();
    for (int program = 0; program < 2; ++program) {
        s.hello_all();
        for (uint32_t rank = 0; rank < 2; ++rank) s.arrive(rank, 1);
        for (uint32_t rank = 0; rank < 2; ++rank) {
            EXPECT_EQ(s.ranks[rank].replies[1].status(), wire::OK);
            s.goodbye(rank);
            s.ranks[rank] = {};
        }
    }
    EXPECT_TRUE(s.log.empty());
}

TEST(Hello, BeforeTheBrokerIsThereIsKept) {
    Simulation s(2, 1);
    s.join(0);
    s.hello(0);
    s.hello(1);  // its node has not joined
    s.arrive(0, 1);
    s.arrive(1, 1);
    EXPECT_TRUE(s.ranks[1].replies.empty());
    s.join(1);
    EXPECT_EQ(s.ranks[1].replies[1].status(), wire::OK);
}

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

TEST(Meeting, WhatMakesNoSenseIsRefused) {
    Simulation s(1, 4);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1, "g", {1, 2});     // not a member
    s.arrive(0, 2, "g", {0, 9});     // no such rank
    s.arrive(0, 3, "g", {2, 0});     // not ascending
    s.arrive(0, 4, "g", {0, 0, 1});  // twice
    s.arrive(0, 5, std::string(300, 'g'));
    s.pass(2 * kGather);
    for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(s.ranks[0].replies[id].status(), wire::INVALID) << id;
    EXPECT_EQ(s.ranks[0].replies[5].status(), wire::TOO_LARGE);
}

// A relay wraps what a rank sends, and collects what its ranks bring: neither may grow over a frame.
TEST(Meeting, WhatIsTooLargeFailsTheCallAndNotTheNode) {
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

TEST(Meeting, NamesWhoIsMissingAndWhy) {
    Simulation s(2, 2);
    s.join_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.arrive(0, 1, "world", {}, "", 0, Time(2000));
    s.pass(Time(2100));
    const std::string error = s.ranks[0].replies[1].error();
    EXPECT_EQ(s.ranks[0].replies[1].status(), wire::TIMEOUT);
    EXPECT_EQ(error,
              "1 of 4 ranks met in group \"world\" within 2 s; missing: gpu[0-1]: ranks 1-2 said hello, not "
              "here yet; "
              "gpu1: rank 3 started, no hello (pid 1003)");
}

TEST(Meeting, DoesNotWaitForARankThatHasEnded) {
    Simulation s(2, 1);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.goodbye(1);
    s.exit(1, 0);
    s.pass(kGoodNews);
    EXPECT_EQ(s.ranks[0].replies[1].status(), wire::ABORTED);
    EXPECT_NE(s.ranks[0].replies[1].error().find("cannot meet; gpu1: rank 1 exited with code 0"),
              std::string::npos);
    s.arrive(0, 2, "world", {}, "", 1);  // nor does a later one
    EXPECT_EQ(s.ranks[0].replies[2].status(), wire::ABORTED);
    EXPECT_TRUE(s.log.empty());
}

TEST(Late, RanksAreNamedWhileOneWaitsAndEndTheStepAtTheDeadline) {
    Simulation s(2, 2, Time(60000));
    s.join_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.start(rank);
    for (uint32_t rank = 0; rank < 3; ++rank) s.hello(rank);
    s.pass(Time(4900));
    EXPECT_TRUE(s.log.empty());
    s.pass(Time(200));
    EXPECT_TRUE(
        s.logged("3 of 4 ranks said hello after 5 s; missing: gpu1: rank 3 started, no hello (pid 1003)"));
    EXPECT_EQ(s.log.size(), 1u);
    s.pass(Time(5000));
    EXPECT_EQ(s.log.size(), 2u);
    s.pass(Time(50000));
    EXPECT_TRUE(
        s.logged("3 of 4 ranks said hello within 60 s (--dp-timeout); missing: gpu1: rank 3 started"));
    s.pass(Time(2000));
    for (const auto& sent : s.signals) {
        ASSERT_EQ(sent.size(), 2u);
        EXPECT_EQ(sent[0].second, SIGTERM);
        EXPECT_EQ(sent[1].second, SIGKILL);
    }
}

// The ranks' own calls have the same deadline: they hear of the rank that never started, not of a meeting
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

// A shell that starts the program again: what the first process waited for is not the second's.
TEST(Hello, ASecondProgramDoesNotInheritTheCallsOfTheFirst) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    s.arrive(3, 1);
    s.arrive(0, 1);
    s.pass(Time(100));
    s.vanish(3);
    s.hello(3);
    wire::Request get;
    get.mutable_get()->set_key("never");
    s.request(3, 1, get);  // the same number as the first program's call
    s.arrive(1, 1);
    s.arrive(2, 1);
    EXPECT_FALSE(s.ranks[0].replies.contains(1)) << "rank 3 has not come";
    s.arrive(3, 2);
    EXPECT_EQ(s.ranks[0].replies.at(1).status(), wire::OK);
    EXPECT_EQ(s.ranks[3].replies.at(2).status(), wire::OK);
    EXPECT_FALSE(s.ranks[3].replies.contains(1));
}

TEST(Late, NodesThatHaveNotConnectedAreNamedWhileOneWaits) {
    Simulation s(4, 2, Time(60000));
    s.join(0);
    s.join(1);
    s.pass(Time(5100));
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0],
              "4 of 8 ranks are there after 5 s; missing: gpu[2-3]: ranks 4-7 not started (not connected: no "
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

TEST(Death, IsNamedOnceAndEndsEverybodySoon) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.exit(3, kKilled);
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0], "rank 3 on gpu1 was killed by signal 9 (SIGKILL); ending the step");
    EXPECT_EQ(s.ranks[0].aborted, "rank 3 on gpu1 was killed by signal 9 (SIGKILL)");
    EXPECT_EQ(s.ranks[0].dead, std::vector<uint32_t>{3});
    // What follows from the first death is no cause, and calls fail with the first.
    s.exit(2, kTermed);
    s.exit(0, kCode3);
    EXPECT_EQ(s.log.size(), 1u);
    s.arrive(1, 7);
    EXPECT_NE(s.ranks[1].replies[7].error().find("rank 3 on gpu1"), std::string::npos);
    const Time died = s.now;
    s.pass(Time(3000));
    for (const auto& sent : s.signals) {
        ASSERT_EQ(sent.size(), 2u);
        EXPECT_EQ(sent[1].second, SIGKILL);
        EXPECT_LE(sent[1].first - died, Time(1300));
    }
}

TEST(Death, SaysHowFarTheTrainingWas) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    wire::FromRank progress;
    for (uint64_t step : {1199, 1200}) {
        progress.mutable_progress()->set_step(step);
        s.from_rank(3, progress);
    }
    s.exit(3, kKilled);
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0], "rank 3 on gpu1 was killed by signal 9 (SIGKILL) at step 1200; ending the step");
}

// srun -e job.%N: nobody who reads that file sees what rank 0's node says.
TEST(Death, IsAlsoSaidWhereANodeHasAFileOfItsOwn) {
    for (bool own_file : {false, true}) {
        NodeConfig config;
        config.node_rank = 1;
        config.ranks = {2, 3};
        config.world_size = 4;
        config.own_stderr = own_file;
        Node node(config, Time(0));
        node.on_joined("10.0.0.2", Time(0));
        wire::ToNode message;
        message.mutable_plan();
        node.on_broker(message, Time(0));
        message.mutable_abort()->set_reason("rank 0 on gpu0 exited with code 3");
        const NodeActions actions = node.on_broker(message, Time(0));
        EXPECT_EQ(actions.log,
                  own_file ? std::vector<std::string>{"rank 0 on gpu0 exited with code 3; ending the step"}
                           : std::vector<std::string>());
    }
}

TEST(Death, AfterAnExitCodeTheOthersMayCleanUp) {
    Simulation s(1, 2);
    s.join_all();
    s.exit(0, kCode3);
    EXPECT_TRUE(s.logged("rank 0 on gpu0 exited with code 3; ending the step"));
    s.pass(Time(29000));
    ASSERT_EQ(s.signals[0].size(), 1u);
    EXPECT_EQ(s.signals[0][0].second, SIGTERM);
    s.pass(Time(2000));
    EXPECT_EQ(s.signals[0].size(), 2u);
}

TEST(Death, AStepThatWasToldToEndHasNoCulprit) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    for (uint32_t rank = 0; rank < 4; ++rank) {
        s.exit(rank, kTermed);
        s.pass(Time(50));
    }
    s.pass(Time(1000));
    EXPECT_TRUE(s.log.empty());
}

TEST(Death, ByAPoliteSignalAloneIsOne) {
    Simulation s(2, 2);
    s.join_all();
    s.exit(2, kTermed);
    EXPECT_TRUE(s.log.empty());
    s.pass(Time(400));
    EXPECT_TRUE(s.logged("rank 2 on gpu1 was killed by signal 15 (SIGTERM); ending the step"));
}

// Its collectives break off at once, and whoever uses them leaves with an exit code or abort().
TEST(Death, ThatIsHeldBackIsNamedBeforeThoseThatFollowFromIt) {
    for (const int follower : {4 << 8, int{SIGABRT}}) {
        Simulation killed(2, 2);
        killed.join_all();
        killed.hello_all();
        killed.exit(0, kTermed);
        killed.pass(Time(50));
        killed.exit(3, follower);
        ASSERT_EQ(killed.log.size(), 1u);
        EXPECT_TRUE(killed.logged("rank 0 on gpu0 was killed by signal 15 (SIGTERM); ending the step"));
        killed.pass(Time(1000));
        EXPECT_EQ(killed.log.size(), 1u);

        Simulation lost(2, 2);
        lost.join_all();
        lost.hello_all();
        lost.cut(1);
        lost.pass(Time(20));
        lost.exit(0, follower);
        EXPECT_TRUE(lost.logged("node gpu1 (ranks 2-3) is lost: its connection closed; ending the step"));
    }
}

// SIGKILL of a whole step reaches its nodes some milliseconds apart.
TEST(Death, BySigkillBesideALostConnectionMakesNoLostNode) {
    Simulation s(2, 1);
    s.join_all();
    s.cut(1);
    s.exit(0, kKilled);
    EXPECT_FALSE(s.logged("is lost"));
}

TEST(Report, EveryDeathIsNamedEndsNobodyAndFailsWhatWaitsForIt) {
    Simulation s(3, 2, Time(10000), false, true);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.exit(3, kKilled);
    s.exit(5, kCode3);
    s.exit(4, kTermed);
    s.pass(Time(700));
    EXPECT_EQ(
        s.log,
        (std::vector<std::string>{
            "rank 3 on gpu1 was killed by signal 9 (SIGKILL); the others go on (--dp-on-failure=report)",
            "rank 5 on gpu2 exited with code 3; the others go on (--dp-on-failure=report)",
            "rank 4 on gpu2 was killed by signal 15 (SIGTERM); the others go on "
            "(--dp-on-failure=report)"}));
    ASSERT_TRUE(s.ranks[0].replies.contains(1));
    EXPECT_NE(s.ranks[0].replies[1].error().find("gpu1: rank 3 was killed"), std::string::npos);
    EXPECT_EQ(s.ranks[0].aborted, "");
    EXPECT_EQ(s.ranks[0].dead, (std::vector<uint32_t>{3, 5, 4}));
    s.pass(Time(40000));
    for (const auto& sent : s.signals) EXPECT_TRUE(sent.empty());
}

// What follows from the first death may be all the others': one message and one line for them, not one each.
TEST(Report, ThoseWhoFollowAreNamedTogether) {
    Simulation s(64, 2, Time(10000), false, true);
    s.join_all();
    s.hello_all();
    s.exit(3, kKilled);
    const size_t messages = s.messages_to_nodes;
    for (uint32_t rank = 4; rank < 128; ++rank) s.exit(rank, kCode3);
    EXPECT_EQ(s.messages_to_nodes, messages);
    s.pass(Time(300));
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(s.log[1],
              "ranks 4-127 (gpu[2-9],gpu[10-63]) died, too; first rank 4 on gpu2 exited with code 3; the "
              "others go on "
              "(--dp-on-failure=report)");
    EXPECT_EQ(s.ranks[0].dead.size(), 125u);
}

TEST(Report, WhoComesLaterHearsOfTheDeaths) {
    Simulation s(3, 2, Time(10000), false, true);
    s.join(0);
    s.join(1);
    s.hello(2);
    s.exit(2, kKilled);
    s.join(2);
    s.hello(4);
    s.hello(0);
    EXPECT_EQ(s.ranks[4].dead, std::vector<uint32_t>{2});
    EXPECT_EQ(s.ranks[0].dead, std::vector<uint32_t>{2});
}

TEST(Report, ANodeThatIsLostBeforeItsRanksSaidHelloEndsNobodyLater) {
    Simulation s(3, 2, Time(10000), false, true);
    s.join_all();
    for (uint32_t rank : {0u, 1u, 4u, 5u}) s.hello(rank);
    s.cut(1);
    s.pass(Time(30000));
    for (uint32_t rank : {0u, 1u, 4u, 5u}) EXPECT_EQ(s.ranks[rank].aborted, "");
    EXPECT_TRUE(s.logged("node gpu1 (ranks 2-3) is lost: its connection closed; the others go on"));
}

TEST(Report, WithoutABrokerWhoWaitsIsToldAtOnce) {
    Simulation s(2, 2, Time(10000), false, true);
    s.join_all();
    s.hello_all();
    s.arrive(2, 1);
    s.arrive(3, 1, "held", {2, 3});
    wire::Request get;
    get.mutable_get()->set_key("never");
    s.request(3, 2, get);
    s.lose_broker(1);
    EXPECT_EQ(s.ranks[2].replies.at(1).status(), wire::LOST);
    EXPECT_EQ(s.ranks[3].replies.at(1).status(), wire::LOST);
    EXPECT_EQ(s.ranks[3].replies.at(2).status(), wire::LOST);
    EXPECT_NE(s.ranks[2].replies.at(1).error().find("lost the rendezvous daemon on gpu0"), std::string::npos);
    EXPECT_EQ(s.ranks[2].aborted, "");
}

TEST(Report, ALostNodeOrBrokerEndsNobodyEither) {
    Simulation s(2, 2, Time(10000), false, true);
    s.join_all();
    s.hello_all();
    s.cut(1);
    s.pass(Time(40000));
    EXPECT_TRUE(s.logged("node gpu1 (ranks 2-3) is lost: its connection closed; the others go on"));
    EXPECT_TRUE(s.signals[0].empty());
    s.lose_broker(1);
    s.pass(Time(40000));
    EXPECT_TRUE(s.logged("its ranks go on without it"));
    EXPECT_TRUE(s.signals[1].empty());
}

TEST(Death, AnExitWithoutGoodbyeIsNamedAndEndsNobody) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.vanish(1);
    s.exit(1, 0);
    s.pass(kGoodNews);
    EXPECT_TRUE(s.logged("rank 1 on gpu0 exited with code 0 without goodbye"));
    s.pass(Time(5000));
    EXPECT_TRUE(s.signals[0].empty());
}

TEST(Death, LastWordsAreHeardBeforeTheExit) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.exit_first(0, 0);  // read before the goodbye that was sent earlier, on another socket
    s.goodbye(0);
    s.exit_first(1, 0);
    s.end(0);
    EXPECT_FALSE(s.broker->finished());
    s.goodbye(1);
    EXPECT_TRUE(s.broker->finished());
    EXPECT_TRUE(s.log.empty());
}

TEST(Death, AConnectionHeldByAChildDelaysTheNewsOnlyShortly) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.exit_first(0, kKilled);
    EXPECT_TRUE(s.log.empty());
    s.pass(kLastWords);
    EXPECT_TRUE(s.logged("rank 0 on gpu0 was killed by signal 9"));
}

TEST(Death, OfAProcessWhoseTaskGoesOnFailsOnlyWhatWaitsForIt) {
    Simulation s(1, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.vanish(1);
    EXPECT_TRUE(s.ranks[0].replies.empty());
    s.pass(kExitFollows + Time(50));
    EXPECT_EQ(s.ranks[0].replies[1].status(), wire::ABORTED);
    EXPECT_TRUE(s.logged("rank 1 on gpu0 closed its connection without goodbye, and its task goes on"));
    s.pass(Time(5000));
    EXPECT_TRUE(s.signals[0].empty());
}

TEST(Death, OfALauncherEndsItsRanksAtOnceAndTheStep) {
    Simulation s(2, 2);
    s.join_all();
    s.hello_all();
    auto actions = s.nodes[1]->on_launcher_lost();
    EXPECT_EQ(actions.signal_ranks, SIGKILL);
    for (auto& message : actions.to_broker) {
        auto told = s.broker->on_message(1, message, s.now);
        for (auto& line : told.log) s.log.push_back(line);
    }
    EXPECT_TRUE(s.logged("slurmstepd on gpu1 is gone"));
}

TEST(Death, OfANodesConnectionIsALostNode) {
    Simulation s(3, 2);
    s.join_all();
    s.hello_all();
    s.arrive(0, 1);
    s.cut(2);
    s.pass(kLostDelay);
    EXPECT_TRUE(s.logged("node gpu2 (ranks 4-5) is lost: its connection closed; ending the step"));
    EXPECT_NE(s.ranks[0].aborted, "");
}

TEST(Death, NodesThatSlurmKillsTogetherAreNotLost) {
    Simulation s(2, 1);
    s.join_all();
    s.cut(1);
    EXPECT_TRUE(s.log.empty());  // and then SIGKILL reaches the broker, too
}

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

TEST(End, AGoodbyeIsNoDeath) {
    Simulation s(2, 1);
    s.join_all();
    s.hello_all();
    s.goodbye(0);
    s.exit(0, 0);
    s.end(0);
    EXPECT_FALSE(s.broker->finished());
    s.request(1, 1, set("k", "v"));
    EXPECT_EQ(s.ranks[1].replies[1].status(), wire::OK);
    // The broker leaves before its slurmstepd has to wait too long, and says so; nobody is left waiting for
    // it.
    s.request(1, 5, get("never"), Time(60000));
    s.arrive(1, 6, "world", {}, "", 9, Time(60000));
    s.pass(kBrokerLinger + Time(100));
    EXPECT_TRUE(s.broker->finished());
    EXPECT_EQ(s.ranks[1].replies[5].status(), wire::LOST);
    EXPECT_NE(s.ranks[1].replies[6].status(), wire::OK);
    s.cut(1);  // the relay closes on the farewell
    s.request(1, 2, get("k"));
    EXPECT_EQ(s.ranks[1].replies[2].status(), wire::LOST);
    s.exit(1, 0);
    s.end(1);
    EXPECT_TRUE(s.nodes[1]->finished());
    EXPECT_TRUE(s.log.empty());
    EXPECT_TRUE(s.signals[1].empty());
}

TEST(End, GoodNewsOfRanksTravelTogetherAndBadOnesDoNotWait) {
    Simulation s(2, 4);
    s.join_all();
    s.hello_all();
    const size_t before = s.messages_to_broker;
    for (uint32_t rank : {4u, 5u, 6u}) {
        s.goodbye(rank);
        s.exit(rank, 0);
    }
    EXPECT_EQ(s.messages_to_broker, before);
    EXPECT_EQ(s.nodes[1]->next_deadline(), s.now + kGoodNews);
    // What comes after them does not overtake them.
    s.exit(7, kCode3);
    EXPECT_EQ(s.messages_to_broker, before + 8);  // and that its connection closed
    EXPECT_TRUE(s.logged("rank 7 on gpu1 exited with code 3"));
    for (uint32_t rank : {4u, 5u, 6u})
        EXPECT_EQ(s.broker->membership().ranks()[rank].state, Membership::RankState::exited);
}

TEST(End, ARanksNextProgramDoesNotOvertakeItsGoodbye) {
    Simulation s(1, 2);
    s.join_all();
    s.hello(0);
    s.goodbye(0);
    s.pass(Time(40));
    s.hello(0);
    s.pass(Time(200));
    EXPECT_EQ(s.broker->membership().ranks()[0].state, Membership::RankState::hello);
}

TEST(Meeting, WhatALostNodesRanksWaitForIsNotSentThere) {
    Simulation s(2, 2, Time(10000), false, true);
    s.join_all();
    s.hello_all();
    s.arrive(2, 1, "tail", {2, 3});
    s.cut(1);
    s.pass(Time(1000));
    EXPECT_EQ(s.messages_to_nobody, 0u);
}

TEST(Hello, ComesNoEarlierWhereANodesClockStoodStill) {
    Simulation s(2, 1, Time(10000));
    s.clock_ahead[1] = Time(4000);
    s.join_all();
    s.hello(0);
    s.frozen = {1};  // stopped for four seconds, and its clock with it
    s.pass(Time(4000));
    s.clock_ahead[1] = Time(0);
    s.frozen.clear();
    s.pass(Time(500));
    s.hello(1);
    s.pass(Time(100));
    EXPECT_GE(*s.broker->membership().ranks()[1].greeted, s.now - Time(200));
}

TEST(End, TheBrokerLeavesWithTheLastNode) {
    Simulation s(2, 1);
    s.join_all();
    for (uint32_t rank = 0; rank < 2; ++rank) s.exit(rank, 0);
    s.end(0);
    EXPECT_FALSE(s.broker->finished());
    s.end(1);
    EXPECT_TRUE(s.broker->finished());
}

TEST(End, CancelledBeforeTheWorldWasCompleteTheBrokerDoesNotLinger) {
    Simulation s(2, 1);
    s.join(0);
    s.exit(0, kTermed);
    s.end(0);
    s.pass(Time(50));
    EXPECT_TRUE(s.broker->finished());
    EXPECT_TRUE(s.log.empty());
}

TEST(Garbage, FromANodeOrARankChangesNothing) {
    Simulation s(2, 2);
    s.join_all();
    std::mt19937 random(7);
    for (int i = 0; i < 20000; ++i) {
        std::string bytes(random() % 40, '\0');
        for (char& c : bytes) c = static_cast<char>(random());
        // Most random bytes do not parse; those that do must be harmless.
        if (auto message = parse_message<wire::FromNode>(bytes);
            message && !message->has_fault() && !message->has_leave())
            s.broker->on_message(random() % 2, *message, s.now);
        if (auto message = parse_message<wire::FromRank>(bytes)) s.from_rank(random() % 4, *message);
    }
    // What made the world complete cannot be undone by a second join.
    EXPECT_TRUE(s.broker->membership().all_joined());
}

// Any order of start, hello, arrival and goodbye brings every meeting to the same end.
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
                                   0);  // 0: before hello; 1..rounds: waiting in that meeting; then done
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

TEST(Patience, FollowsTheStatus) {
    struct {
        int status;
        Patience patience;
    } const cases[] = {{SIGKILL, kBroken},       {SIGSEGV, kBroken},         {SIGTERM, kTold},
                       {SIGINT, kTold},          {3 << 8, kFailed},          {1 << 8, kFailed},
                       {(128 + 15) << 8, kTold}, {(128 + 11) << 8, kBroken}, {(128 + 9) << 8, kBroken}};
    for (const auto& c : cases) EXPECT_EQ(patience_after(c.status), c.patience) << c.status;
}

TEST(Status, WhoHasAskedIsToldWhenTheBrokerGoes) {
    Simulation s(2, 1);
    s.join_all();
    s.frozen = {0};
    wire::FromRank ask;
    ask.mutable_status();
    s.from_rank(1, ask);
    EXPECT_TRUE(s.ranks[1].replies.empty());
    s.lose_broker(1);
    EXPECT_EQ(s.ranks[1].replies[0].status(), wire::LOST);
}

TEST(Status, IsDescribedInWords) {
    EXPECT_EQ(describe_status(9), "was killed by signal 9 (SIGKILL)");
    EXPECT_EQ(describe_status(11 | 0x80), "was killed by signal 11 (SIGSEGV)");
    EXPECT_EQ(describe_status(3 << 8), "exited with code 3");
}

}  // namespace
}  // namespace dp
