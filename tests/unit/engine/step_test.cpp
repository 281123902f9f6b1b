// SPDX-License-Identifier: Apache-2.0
//
// The life of a step as the engine sees it, without a socket and with a clock of the test's: the plan, hellos
// and the end. Collectives, deaths and silence: step_*_test.cpp.
#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "common/wait_status.hpp"
#include "dp/dp.h"
#include "simulation.hpp"

namespace dp {
namespace {

constexpr int kTermed = SIGTERM;  // as a wait status
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

// Slurm may have bound each task to tiles that nobody else knows.
TEST(Plan, HasForItsTableTheTilesThatTasksTell) {
    DaemonConfig config;
    config.ranks = {4, 5};
    config.tasks = 2;
    config.world_size = 6;
    config.tiles = {"0", ""};
    config.settings.verbose = true;
    config.settings = with_defaults(config.settings);
    Node node(config, {}, Time(0));
    const auto tell = [&](uint32_t local) {
        return node.on_control({ControlEvent::Kind::tiles, local, 0, "6-7"}, Time(1));
    };
    EXPECT_TRUE(tell(1).to_broker.empty());
    EXPECT_TRUE(tell(2).to_broker.empty()) << "there is no such rank";
    const NodeActions joined = node.on_joined("10.0.0.2", Time(2));
    ASSERT_FALSE(joined.to_broker.empty());
    const auto& tiles = joined.to_broker.front().join().tiles();
    EXPECT_EQ(std::vector<std::string>(tiles.begin(), tiles.end()), (std::vector<std::string>{"0", "6-7"}));
}

// Where a node cannot take part (it has no such network, say), no rank of any other is to start.
TEST(Plan, IsHeldUntilEveryNodeIsThere) {
    Simulation s(3, 2);
    s.join(0);
    s.join(2);
    s.pass(Time(5000));
    for (const auto& plan : s.plans) EXPECT_FALSE(plan);
    s.join(1);
    for (const auto& plan : s.plans) ASSERT_TRUE(plan);
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
    EXPECT_NE(
        s.no_plans[0]->find("4 of 6 ranks are connected within 10 s (--dp-timeout); missing: gpu2: ranks "
                            "4-5 not started (not connected"),
        std::string::npos)
        << *s.no_plans[0];
    // The waiting tasks of rank 0's node print it; neither the broker nor another node prints it again.
    EXPECT_FALSE(s.logged("4 of 6 ranks are connected within 10 s"));
    EXPECT_EQ(s.no_plans[1], "");
    // The node that could not connect gives up by itself.
    ASSERT_TRUE(s.no_plans[2]);
    EXPECT_NE(s.no_plans[2]->find("this node could not reach the rendezvous daemon on gpu0 within 10 s"),
              std::string::npos);
}

// A node's first task prints why there is no plan. If it is dead, the daemon does.
TEST(Plan, AnAbortBeforeItIsPrintedOnceEvenWhereTheFirstTaskIsDead) {
    for (const uint32_t victim : {0u, 1u}) {
        Simulation s(2, 2);
        s.join(0);
        for (uint32_t rank : {0u, 1u}) s.start(rank);
        s.exit(victim, SIGKILL);
        // Slurm may be killing the step as a whole, and this daemon next.
        EXPECT_TRUE(!s.no_plans[0] && s.log.empty());
        s.pass(kPoliteDelay);
        const std::string why =
            "rank " + std::to_string(victim) + " on gpu0 was killed by signal 9 (SIGKILL)";
        EXPECT_EQ(s.no_plans[0], why);
        using Lines = std::vector<std::string>;
        EXPECT_EQ(s.log, victim == 0 ? Lines{why + "; ending the step"} : Lines{});
    }
    // The same for what a node finds out without the broker.
    for (const uint32_t victim : {2u, 3u}) {
        Simulation s(2, 2);
        s.join(0);
        s.exit(victim, SIGKILL);
        s.pass(Time(10100));
        EXPECT_EQ(s.logged("this node could not reach the rendezvous daemon on gpu0"), victim == 2);
    }
}

// All the others see the same; some of them may be gone, too, so three of them say it.
TEST(Plan, ABrokerThatIsLostBeforeItIsTheConcernOfAFew) {
    Simulation s(6, 1);
    for (uint32_t node = 0; node < 5; ++node) s.join(node);
    for (uint32_t node = 1; node < 5; ++node) s.lose_broker(node);
    s.pass(Time(200));
    for (uint32_t node = 1; node < 5; ++node) {
        ASSERT_TRUE(s.no_plans[node]);
        EXPECT_EQ(*s.no_plans[node] == "", node > 3) << *s.no_plans[node];
    }
    EXPECT_TRUE(s.log.empty()) << s.log.front();
}

TEST(Plan, ANodeThatMetAnotherVersionSaysSoAtTheDeadline) {
    Simulation s(2, 2);
    s.join(0);
    s.nodes[1]->on_other_version(kNodeProtocol + 1);
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
        "rank 0 expects a world of 8 ranks, but this step has 4; something changed DP_WORLD_SIZE in its "
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
    // The broker leaves before its slurmstepd has waited too long, and says so; nobody keeps waiting for it.
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
    EXPECT_EQ(s.nodes[1]->next_deadline(), s.now + kExitBatch);
    // What comes after them does not overtake them.
    s.exit(7, kCode3);
    EXPECT_EQ(s.messages_to_broker, before + 8);  // and that its connection closed
    EXPECT_TRUE(s.logged("rank 7 on gpu1 exited with code 3"));
    for (uint32_t rank : {4u, 5u, 6u})
        EXPECT_EQ(s.broker->membership().ranks()[rank].told.state(), wire::StepStatus::EXITED);
}

TEST(End, ARanksNextProgramDoesNotOvertakeItsGoodbye) {
    Simulation s(1, 2);
    s.join_all();
    s.hello(0);
    s.goodbye(0);
    s.pass(Time(40));
    s.hello(0);
    s.pass(Time(200));
    EXPECT_EQ(s.broker->membership().ranks()[0].told.state(), wire::StepStatus::HELLO);
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
    const Time start{1000};  // of the simulation
    EXPECT_GE(start + Time(s.broker->membership().ranks()[1].told.hello_ms()), s.now - Time(200));
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
