// SPDX-License-Identifier: Apache-2.0
//
// --dp-on-failure=restart: which deaths begin another generation, and how a step goes from one to the next.
#include "engine/restarts.hpp"

#include <gtest/gtest.h>

#include <csignal>

#include "simulation.hpp"

namespace dp {
namespace {

constexpr int kKilled = SIGKILL;  // as a wait status
constexpr int kTermed = SIGTERM;
int code(int number) {
    return number << 8;
}

Settings restarting(uint32_t most = 10) {
    Settings settings;
    settings.restarts = most;
    return with_defaults(settings);
}

Death death_of(int status, std::optional<uint64_t> step = {}) {
    return {"rank 3 died", kBroken, {3}, status, step};
}

TEST(RestartPolicy, JudgesADeath) {
    Death lost = death_of(kKilled);
    lost.final = true;
    const struct {
        Death death;
        bool told;
        std::optional<std::string> why_not;
    } cases[] = {
        {death_of(kKilled, 5), false, std::nullopt},
        {death_of(code(1), 5), false, std::nullopt},
        {death_of(code(255), 5), false, std::nullopt},
        {death_of(code(2), 5), false, "--dp-final-exit lists this code"},
        {death_of(code(126), 5), false, "--dp-final-exit lists this code"},
        {death_of(code(127), 5), false, "--dp-final-exit lists this code"},
        {death_of(SIGINT, 5), false, std::nullopt},  // signal 2 is not code 2
        {death_of(code(1), 5), true, "the step was told to end"},
        {lost, false, ""},
    };
    for (const auto& c : cases) {
        RestartPolicy policy(restarting());
        EXPECT_EQ(policy.why_not(c.death, c.told, Time(0)), c.why_not) << *c.death.status;
    }
}

TEST(RestartPolicy, AllowsSoManyRestarts) {
    RestartPolicy policy(restarting(4));
    for (uint64_t step : {10, 20, 30, 40})
        EXPECT_FALSE(policy.why_not(death_of(kKilled, step), false, Time(0)));
    EXPECT_EQ(policy.why_not(death_of(kKilled, 50), false, Time(0)),
              "all restarts are used (--dp-restarts=4)");
    RestartPolicy none(restarting(0));
    EXPECT_EQ(none.why_not(death_of(kKilled, 5), false, Time(0)), "no restart is allowed (--dp-restarts=0)");
}

TEST(RestartPolicy, EndsAfterThreeGenerationsThatGotNowhere) {
    // They die within ten seconds of their start, and nobody speaks of steps.
    RestartPolicy at_once(restarting());
    EXPECT_FALSE(at_once.why_not(death_of(kKilled), false, Time(9000)));
    at_once.begin(Time(20000));
    EXPECT_FALSE(at_once.why_not(death_of(kKilled), false, Time(21000)));
    at_once.begin(Time(30000));
    EXPECT_EQ(at_once.why_not(death_of(kKilled), false, Time(31000)),
              "the third generation in a row to end without progress: within 10 s of its start");
    // A long life begins the count anew.
    RestartPolicy sometimes(restarting());
    for (int round = 0; round < 3; ++round) {
        const Time start = Time(100000) * round;
        sometimes.begin(start);
        EXPECT_FALSE(sometimes.why_not(death_of(kKilled), false, start + Time(1000)));
        sometimes.begin(start);
        EXPECT_FALSE(sometimes.why_not(death_of(kKilled), false, start + Time(10000)));
    }
    // Who reports steps must come further than any dead rank before, however long it lives.
    RestartPolicy steps(restarting());
    EXPECT_FALSE(steps.why_not(death_of(kKilled, 7), false, Time(0)));
    EXPECT_FALSE(steps.why_not(death_of(kKilled, 7), false, Time(60000)));
    EXPECT_FALSE(steps.why_not(death_of(kKilled, 6), false, Time(120000)));
    EXPECT_EQ(steps.why_not(death_of(kKilled, 7), false, Time(180000)),
              "the third generation in a row to end without progress: no new training step");
    // A lost node is not the program's doing.
    RestartPolicy lost(restarting());
    Death node = death_of(kKilled);
    node.of_node = true;
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(lost.why_not(node, false, Time(0)));
    // Others, which report none, are not judged by it.
    RestartPolicy one_reports(restarting());
    EXPECT_FALSE(one_reports.why_not(death_of(kKilled, 7), false, Time(0)));
    for (const Time hour : {Time(3600000), Time(7200000), Time(10800000)})
        EXPECT_FALSE(one_reports.why_not(death_of(kKilled), false, hour));
}

TEST(RestartPolicy, ASurvivorThatFollowsTheDeadIsNoGenerationThatGotNowhere) {
    Death survivor = death_of(kKilled, 7);
    survivor.of_survivor = true;
    RestartPolicy policy(restarting(20));
    EXPECT_FALSE(policy.why_not(death_of(kKilled, 7), false, Time(0)));
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(policy.why_not(survivor, false, Time(9000)));
    EXPECT_EQ(policy.used(), 6u);
    // It neither counts nor begins the count anew, and one that has lived on for a while is judged like others.
    EXPECT_FALSE(policy.why_not(survivor, false, Time(10000)));
    EXPECT_FALSE(policy.why_not(survivor, false, Time(9000)));
    EXPECT_FALSE(policy.why_not(survivor, false, Time(10000)));
    EXPECT_EQ(policy.why_not(survivor, false, Time(10000)),
              "the third generation in a row to end without progress: no new training step");
    // What it has reached counts, however soon it died.
    RestartPolicy progress(restarting(20));
    for (const uint64_t step : {7, 7, 7})
        EXPECT_FALSE(progress.why_not(death_of(kKilled, step), false, Time(0)));
    survivor.step = 500;
    EXPECT_FALSE(progress.why_not(survivor, false, Time(9000)));
    for (const uint64_t step : {500, 400})
        EXPECT_FALSE(progress.why_not(death_of(kKilled, step), false, Time(0)));
    EXPECT_TRUE(progress.why_not(death_of(kKilled, 500), false, Time(0)));
}

TEST(StepsRepeated, AreThoseThatWereTakenBefore) {
    const struct {
        std::vector<uint64_t> ended_at;  // node by node
        uint64_t begins_with;
        std::optional<uint64_t> repeated;
    } cases[] = {
        {{1200, 1200}, 1201, 0},
        {{1200, 1201}, 1201, 1},
        {{1200, 1199}, 1001, 200},
        {{1200}, 1300, 0},  // its last reports were not sent
        {{0}, 0, 1},
        {{}, 5, std::nullopt},
    };
    for (const auto& c : cases) {
        StepsRepeated steps;
        for (const uint64_t step : c.ended_at) steps.ended_at(step);
        EXPECT_EQ(steps.begins_with(c.begins_with), c.repeated);
        EXPECT_EQ(steps.begins_with(c.begins_with), std::nullopt) << "the next generation counts anew";
    }
}

Simulation restarting_step(uint32_t nodes, uint32_t ranks, const Settings& more = {}) {
    return Simulation(nodes, ranks, Time(10000), false, FailureAction::restart, more);
}

// As Slurm and its keepers would: all ranks have started and said hello.
void start(Simulation& s) {
    s.join_all();
    s.start_all();
    s.hello_all();
}
// The others end of SIGTERM.
void end_the_others(Simulation& s, uint32_t dead) {
    for (uint32_t rank = 0; rank < s.ranks.size(); ++rank)
        if (rank != dead) s.exit(rank, kTermed);
}

TEST(Restart, EndsAllRanksAndBeginsTheNextGeneration) {
    Simulation s = restarting_step(2, 2);
    start(s);
    s.arrive(0, 1);
    s.exit(3, kKilled);
    EXPECT_TRUE(s.log.empty());
    EXPECT_EQ(s.ranks[0].aborted, "rank 3 on gpu1 was killed by signal 9 (SIGKILL)");
    s.pass(Time(1), Time(1));
    for (const auto& sent : s.signals) {
        ASSERT_EQ(sent.size(), 1u);
        EXPECT_EQ(sent[0].second, SIGTERM);
    }
    // No rank begins before the last of the old generation has ended, on any node.
    s.exit(2, kTermed);
    s.exit(0, kTermed);
    EXPECT_EQ(s.to_clear, std::vector<uint32_t>{1});
    EXPECT_FALSE(s.lives[0] || s.lives[1]);
    s.exit(1, kTermed);
    for (uint32_t node : {0, 1}) {
        ASSERT_TRUE(s.lives[node]);
        EXPECT_EQ(s.lives[node]->generation, 1u);
        EXPECT_EQ(s.lives[node]->master_port, 29500);
        EXPECT_EQ(s.lives[node]->coordinator_port, 29501);
        EXPECT_EQ(s.lives[node]->master_addr, "10.0.0.1");
        EXPECT_EQ(s.lives[node]->node_addr, Simulation::address(node));
    }
    s.now += Time(310);
    s.start_all();
    ASSERT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.log[0], "rank 3 on gpu1 was killed by signal 9 (SIGKILL); generation 1 began 0.31 s later");
    // The new world works, and the next death names its own generation.
    for (auto& rank : s.ranks) rank = {};
    s.hello_all();
    for (uint32_t rank = 0; rank < 4; ++rank) s.arrive(rank, 1);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.replies.at(1).status(), wire::OK);
    s.exit(0, code(1));
    end_the_others(s, 0);
    s.start_all();
    EXPECT_EQ(s.log.back(), "rank 0 on gpu0 exited with code 1; generation 2 began 0.00 s later");
    EXPECT_EQ(s.lives[1]->generation, 2u);
}

TEST(Restart, SaysHowManyStepsAreRepeated) {
    Simulation s = restarting_step(2, 2);
    start(s);
    for (const uint32_t rank : {0, 1, 3}) s.progress(rank, 1200);
    s.progress(2, 1201);
    s.exit(3, kKilled);
    end_the_others(s, 3);
    s.now += Time(50);
    // It speaks before the other node's ranks are known to run.
    for (const uint32_t rank : {2, 3}) s.start(rank);
    s.hello(2);
    s.now += Time(3000);
    s.progress(2, 1001);
    EXPECT_TRUE(s.log.empty());
    for (const uint32_t rank : {0, 1}) s.start(rank);
    ASSERT_EQ(s.log.size(), 2u);
    EXPECT_EQ(
        s.log[0],
        "rank 3 on gpu1 was killed by signal 9 (SIGKILL) at step 1200; generation 1 began 3.05 s later");
    EXPECT_EQ(s.log[1],
              "generation 1 took its first step, 1001, 3.05 s after the failure; 201 steps repeated");
    // Only the first step counts, on any node.
    s.hello(0);
    s.progress(0, 1001);
    s.progress(2, 1002);
    EXPECT_EQ(s.log.size(), 2u);
    // A generation that takes no step does not hide what the one before it had taken.
    s.exit(0, kKilled);
    end_the_others(s, 0);
    s.start_all();
    s.exit(1, kKilled);
    end_the_others(s, 1);
    s.start_all();
    EXPECT_EQ(s.log.size(), 4u);
    s.hello(1);
    s.progress(1, 1002);
    EXPECT_EQ(s.log.back(),
              "generation 3 took its first step, 1002, 0.00 s after the failure; 1 step repeated");
}

TEST(Restart, TellsTheStepsOfAGenerationOfWhichNotAllRanksHadStarted) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.progress(0, 20);
    s.exit(1, kKilled);
    s.exit(0, kTermed);
    s.start(0);
    s.hello(0);
    s.progress(0, 11);
    s.exit(0, code(1));
    s.exit(1, kTermed);
    EXPECT_EQ(s.log.back(),
              "generation 1 took its first step, 11, 0.00 s after the failure; 10 steps repeated");
    // And it does not count them again.
    s.start_all();
    s.hello(1);
    s.progress(1, 12);
    EXPECT_EQ(s.log.back(),
              "generation 2 took its first step, 12, 0.00 s after the failure; 0 steps repeated");
}

TEST(Restart, WaitsUntilNothingOfTheRanksIsLeft) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.uncleared = {1};
    s.exit(0, kKilled);
    s.exit(1, kTermed);
    EXPECT_EQ(s.to_clear.size(), 2u);
    EXPECT_FALSE(s.lives[0]);
    s.clear(1);
    EXPECT_TRUE(s.lives[0]);
}

TEST(Restart, KillsWhoDoesNotEnd) {
    Simulation s = restarting_step(1, 2);
    start(s);
    s.exit(0, kKilled);
    s.pass(Time(900));
    ASSERT_EQ(s.signals[0].size(), 1u);
    s.pass(Time(200));
    ASSERT_EQ(s.signals[0].size(), 2u);
    EXPECT_EQ(s.signals[0][1].second, SIGKILL);
    s.exit(1, kKilled);
    ASSERT_TRUE(s.lives[0]);
    // It is no death of the new generation.
    s.start_all();
    s.pass(Time(2000));
    EXPECT_EQ(s.log.size(), 1u);
    EXPECT_EQ(s.signals[0].size(), 2u);
}

TEST(Restart, EndsTheStepWhereRanksCannotBeKilled) {
    Simulation s = restarting_step(2, 2);
    start(s);
    s.uncleared = {1};
    s.exit(0, kKilled);
    end_the_others(s, 0);
    s.pass(Time(52000));
    ASSERT_TRUE(s.logged("the ranks on node gpu1 (ranks 2-3) could not be ended within 51 s"));
    EXPECT_TRUE(s.logged("ending the step"));
    EXPECT_TRUE(s.no_other_life[0] && s.no_other_life[1]);
}

TEST(Restart, ALateWordOfTheOldGenerationIsDropped) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.exit(0, kKilled);
    s.exit(1, kTermed);
    ASSERT_TRUE(s.lives[1]);
    s.start_all();
    wire::FromNode late;
    late.mutable_rank()->set_rank(1);
    late.mutable_rank()->set_exited(kKilled);
    s.from_node(1, late);
    EXPECT_EQ(s.broker->membership().ranks()[1].told.state(), wire::StepStatus::STARTED);
    // A process of the old generation that was overlooked.
    wire::FromRank hello;
    hello.mutable_hello()->set_protocol(kProtocol);
    hello.mutable_hello()->set_rank(1);
    hello.mutable_hello()->set_world_size(2);
    s.ranks[1] = {};
    s.from_rank(1, hello);
    EXPECT_FALSE(s.ranks[1].welcome);
    EXPECT_EQ(s.ranks[1].replies[0].error(),
              "rank 1 belongs to generation 0, and this is generation 1 (DP_GENERATION, or a libdp older "
              "than slurm-dp)");
}

TEST(Restart, TheKeepersOfRanksThatAreDoneWaitForTheOthers) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.goodbye(0);
    s.exit(0, 0);
    s.pass(Time(1000));
    EXPECT_FALSE(s.no_other_life[0]);
    s.exit(1, kKilled);  // rank 0 starts again, too
    ASSERT_TRUE(s.lives[0]);
    s.start_all();
    s.hello_all();
    for (uint32_t rank : {0, 1}) {
        s.goodbye(rank);
        s.exit(rank, 0);
    }
    s.pass(Time(100));
    EXPECT_TRUE(s.no_other_life[0] && s.no_other_life[1]);
    EXPECT_EQ(s.log.size(), 1u);
    for (uint32_t rank : {0, 1}) s.end_keeper(rank, 0);
    for (uint32_t node : {1, 0}) s.end(node);
    EXPECT_TRUE(s.broker->finished());
}

TEST(Restart, IsNoneWhereTheStepWasToldToEnd) {
    for (const int status : {kTermed, code(1), 0}) {
        Simulation s = restarting_step(2, 1);
        start(s);
        for (uint32_t rank : {0, 1}) s.tell_to_end(rank);
        for (uint32_t rank : {0, 1}) {
            if (status == 0) s.goodbye(rank);
            s.exit(rank, status);
        }
        s.pass(Time(1000));
        EXPECT_FALSE(s.lives[0]) << status;
        EXPECT_TRUE(s.no_other_life[0] && s.no_other_life[1]) << status;
        EXPECT_EQ(s.logged("the step was told to end; ending the step"), status == code(1)) << status;
        EXPECT_EQ(s.log.size(), status == code(1) ? 1u : 0u) << status;
    }
    // One rank alone is a death as any other.
    Simulation one = restarting_step(2, 1);
    start(one);
    one.tell_to_end(1);
    one.exit(1, kTermed);
    one.pass(Time(400));
    one.exit(0, kTermed);
    EXPECT_TRUE(one.lives[0]);
    // Some of it in the old generation, and some in the next.
    Simulation across = restarting_step(2, 1);
    start(across);
    across.tell_to_end(0);
    across.exit(0, kKilled);
    across.exit(1, kTermed);
    ASSERT_TRUE(across.lives[1]);
    across.start(0);
    across.tell_to_end(1);
    EXPECT_TRUE(across.logged("the step was told to end before its next generation began"));
    // While the old generation is being ended.
    Simulation late = restarting_step(2, 1);
    start(late);
    late.exit(0, kKilled);
    for (uint32_t rank : {0, 1}) late.tell_to_end(rank);
    late.exit(1, kTermed);
    EXPECT_FALSE(late.lives[0]);
    EXPECT_TRUE(late.logged("the step was told to end before its next generation began; ending the step"));
}

TEST(Restart, IsNoneWithoutTheNodeOrAKeeper) {
    Simulation lost = restarting_step(3, 1);
    start(lost);
    lost.cut(2);
    lost.pass(Time(200));
    EXPECT_TRUE(
        lost.logged("node gpu2 (rank 2) is lost: its connection closed; no other node can take over; "
                    "--dp-spares or --dp-min-nodes would let the step go on; ending the step"));
    EXPECT_TRUE(lost.no_other_life[0] && lost.no_other_life[1]);
    Simulation killed = restarting_step(2, 2);
    start(killed);
    killed.end_keeper(3, kKilled);
    EXPECT_TRUE(
        killed.logged("the keeper of rank 3 on gpu1 was killed by signal 9 (SIGKILL); no other node can take "
                      "over; --dp-spares or --dp-min-nodes would let the step go on; ending the step"));
    EXPECT_TRUE(killed.keepers_killed[1] && !killed.keepers_killed[0]);
    // Just before a restart, which does not wait for the node, and in the middle of one.
    Simulation before = restarting_step(3, 1);
    start(before);
    before.cut(2);
    before.exit(0, kKilled);
    before.exit(1, kTermed);
    before.pass(Time(200));
    EXPECT_FALSE(before.lives[0]);
    EXPECT_TRUE(before.logged("node gpu2 (rank 2) is lost"));
    EXPECT_TRUE(before.no_other_life[0] && before.no_other_life[1]);
    Simulation both = restarting_step(3, 1);
    start(both);
    both.exit(0, kKilled);
    both.cut(2);
    both.exit(1, kTermed);
    both.pass(Time(200));
    EXPECT_TRUE(both.logged("node gpu2 (rank 2) is lost"));
    EXPECT_TRUE(both.no_other_life[0] && both.no_other_life[1]);
}

Settings with_nodes(uint32_t spares, std::optional<uint32_t> min_nodes = {}) {
    Settings more;
    more.spares = spares;
    more.min_nodes = min_nodes;
    return more;
}

TEST(Restart, ASpareTakesTheRanksOfALostNode) {
    Simulation s = restarting_step(4, 2, with_nodes(1));
    ASSERT_EQ(s.ranks.size(), 6u);
    start(s);
    EXPECT_TRUE(s.plans[3]->place->ranks.empty());
    s.cut(1);
    s.pass(Time(150));
    for (uint32_t rank : {0, 1, 4, 5}) s.exit(rank, kTermed);
    EXPECT_FALSE(s.lives[1]);
    for (const auto& [node, number] : {std::pair(0u, 0u), {3u, 1u}, {2u, 2u}}) {
        ASSERT_TRUE(s.lives[node]);
        EXPECT_EQ(s.lives[node]->place->ranks, (std::vector<uint32_t>{2 * number, 2 * number + 1}));
        EXPECT_EQ(s.lives[node]->place->node_rank, number);
        EXPECT_EQ(s.lives[node]->place->nodes, 3u);
        EXPECT_EQ(s.lives[node]->place->world_size, 6u);
    }
    s.start_all();
    s.hello_all();
    for (uint32_t rank = 0; rank < 6; ++rank) s.arrive(rank, 1);
    for (const auto& rank : s.ranks) EXPECT_EQ(rank.replies.at(1).status(), wire::OK);
    EXPECT_TRUE(
        s.logged("node gpu1 (ranks 2-3) is lost: its connection closed; generation 1 began 0.05 s later with "
                 "spare node gpu3"));
    // The next one has no spare any more.
    s.cut(3);
    s.pass(Time(150));
    EXPECT_TRUE(
        s.logged("node gpu3 (ranks 2-3) is lost: its connection closed; no spare node is left, and without "
                 "--dp-min-nodes the world cannot shrink; ending the step"));
    EXPECT_TRUE(s.no_other_life[0]);
}

TEST(Restart, TheWorldShrinksAsFarAsItMay) {
    Simulation s = restarting_step(3, 2, with_nodes(0, 2));
    start(s);
    s.cut(1);
    s.pass(Time(150));
    for (uint32_t rank : {0, 1, 4, 5}) s.exit(rank, kTermed);
    ASSERT_TRUE(s.lives[2]);
    EXPECT_EQ(s.lives[2]->place->ranks, (std::vector<uint32_t>{2, 3}));
    EXPECT_EQ(s.lives[2]->place->node_rank, 1u);
    EXPECT_EQ(s.lives[2]->place->world_size, 4u);
    s.start_all();
    s.hello_all();
    EXPECT_EQ(s.broker->membership().hellos(), 4u);
    EXPECT_TRUE(s.logged("later with 4 ranks on 2 nodes"));
    s.cut(2);
    s.pass(Time(150));
    EXPECT_TRUE(s.logged(
        "node gpu2 (ranks 2-3) is lost: its connection closed; 1 node is left, fewer than --dp-min-nodes=2; "
        "ending the step"));
}

TEST(Restart, ALostSpareIsNamedAndChangesNothing) {
    Simulation s = restarting_step(3, 1, with_nodes(1));
    start(s);
    s.cut(2);
    s.pass(Time(150));
    EXPECT_EQ(s.log, std::vector<std::string>{
                         "node gpu2 (a spare) is lost: its connection closed; 0 spare nodes left"});
    EXPECT_FALSE(s.lives[0] || s.no_other_life[0]);
}

TEST(Restart, ANodeThatIsLostWhileAGenerationEndsIsNotWaitedFor) {
    Simulation s = restarting_step(4, 1, with_nodes(1));
    start(s);
    s.uncleared = {1};
    s.exit(0, kKilled);
    for (uint32_t rank : {1, 2}) s.exit(rank, kTermed);
    EXPECT_FALSE(s.lives[0]);
    s.cut(1);
    ASSERT_TRUE(s.lives[0] && s.lives[3]);
    EXPECT_EQ(s.lives[3]->place->ranks, std::vector<uint32_t>{1});
    EXPECT_TRUE(s.logged("node gpu1 (rank 1) is lost: its connection closed"));
}

// Rank 0's part of a network that is cut goes on if it has at least half of the nodes.
TEST(Restart, GoesOnOnlyWithHalfOfItsNodes) {
    for (const uint32_t left : {1, 2, 3}) {
        Simulation s(4, 1, Time(60000), false, FailureAction::restart, with_nodes(0, 1), 3);
        start(s);
        for (uint32_t node = left; node < 4; ++node) s.cut_off.insert(node);
        s.pass(Time(4000), Time(100));
        for (uint32_t rank = 0; rank < left; ++rank) s.exit(rank, kTermed);
        s.pass(Time(4000), Time(100));
        EXPECT_EQ(s.lives[0].has_value(), left >= 2) << left;
        EXPECT_EQ(s.logged("only 1 of 4 nodes can be reached, too few to go on; ending the step"), left < 2);
    }
}

TEST(Restart, AWorldThatIsDoneNeedsNoNodeAnyMore) {
    Simulation s = restarting_step(3, 1, with_nodes(1));
    start(s);
    s.exit(1, 0);
    s.pass(Time(50));  // its exit has been sent
    s.cut(1);
    s.exit(0, 0);
    s.pass(Time(300));
    EXPECT_FALSE(s.lives[0] || s.lives[2]);
    EXPECT_TRUE(s.no_other_life[0] && s.no_other_life[2]);
}

// scancel, while a node is lost: the spare's task was told, too, before it had a rank.
TEST(Restart, WhatASpareWasToldHoldsForItsRank) {
    Simulation s = restarting_step(3, 1, with_nodes(1));
    start(s);
    s.tell_to_end(0);
    s.tell_task(2, 0);
    s.cut(1);
    s.pass(Time(150));
    s.exit(0, kTermed);
    s.pass(Time(50));
    EXPECT_TRUE(s.logged("the step was told to end")) << (s.log.empty() ? "" : s.log.back());
    EXPECT_TRUE(s.no_other_life[0] && s.no_other_life[2]);
}

// Before its ranks may begin elsewhere.
TEST(Restart, ANodeThatHearsNothingEndsItsRanksInTime) {
    Simulation s(3, 1, Time(60000), false, FailureAction::restart, with_nodes(1), 30);
    start(s);
    s.pass(Time(5000), Time(100));
    s.cut_off = {1};
    const Time cut = s.now;
    s.pass(Time(40000), Time(100));
    ASSERT_FALSE(s.signals[1].empty());
    EXPECT_EQ(s.signals[1][0].second, SIGKILL);
    EXPECT_LT(s.signals[1][0].first, cut + Time(28100));
    ASSERT_FALSE(s.signals[0].empty());
    EXPECT_GE(s.signals[0][0].first, cut + Time(29700));
}

// A signal to one process that asks politely, and the others end because of it before anybody has judged the first.
TEST(Restart, ADeathThatTakesAllAlongIsOne) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.exit(0, kTermed);
    s.exit(1, code(1));
    s.pass(Time(400));
    EXPECT_TRUE(s.lives[0] && s.lives[1]);
    EXPECT_FALSE(s.no_other_life[0]);
}

TEST(Restart, ARelayThatLosesTheBrokerMeanwhileEndsItsRanks) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.uncleared = {0, 1};
    s.exit(0, kKilled);
    s.exit(1, kTermed);
    s.lose_broker(1);
    s.pass(Time(200));
    EXPECT_TRUE(s.no_other_life[1]);
    EXPECT_TRUE(s.logged("node gpu1 lost the rendezvous daemon on gpu0"));
}

// Its keeper was late, and nothing would signal it any more.
TEST(Restart, ARankThatBeginsInAGenerationThatEndsIsKilled) {
    Simulation s = restarting_step(1, 2);
    s.join_all();
    s.start(0);
    s.exit(0, kKilled);
    s.pass(Time(2000));
    EXPECT_FALSE(s.killed_rank);
    s.start(1);
    EXPECT_EQ(s.killed_rank, 1u);
    s.exit(1, kKilled);
    EXPECT_TRUE(s.lives[0]);
}

// All ranks of a wrong command line end by themselves, some as others begin: srun's exit code is theirs.
TEST(Restart, ARankThatBeginsInAStepThatEndsIsSignalledAsTheOthersAre) {
    Simulation s = restarting_step(1, 3);
    s.join_all();
    s.start(0);
    s.exit(0, code(2));
    EXPECT_TRUE(s.logged("--dp-final-exit lists this code"));
    s.start(1);
    EXPECT_FALSE(s.killed_rank);
    s.pass(Time(400));
    EXPECT_EQ(s.signals[0].back().second, SIGTERM);
    s.start(2);
    EXPECT_EQ(s.killed_rank, 2u) << "it came too late for SIGTERM";
}

// Their keepers tell nothing any more, and end as they do.
TEST(Restart, TheEndsOfRanksThatOutliveTheDecisionAreTold) {
    Simulation s = restarting_step(1, 2);
    start(s);
    s.exit(0, code(2));
    EXPECT_TRUE(s.no_other_life[0]);
    s.end_keeper(0, code(2));
    s.end_keeper(1, code(7));
    s.pass(Time(3000));
    wire::FromRank question;
    question.mutable_status();
    s.from_rank(0, question);
    ASSERT_EQ(s.told_status.nodes(0).ranks_size(), 2);
    EXPECT_EQ(s.told_status.nodes(0).ranks(1).wait_status(), code(7));
    EXPECT_EQ(s.log.size(), 1u);
}

TEST(Restart, ADeathInTheNextGenerationsStartBeginsAnother) {
    Simulation s = restarting_step(2, 1);
    start(s);
    s.exit(0, kKilled);
    s.exit(1, kTermed);
    s.start(0);
    s.exit(0, kKilled);
    // The other one may not have started yet.
    s.start(1);
    s.exit(1, kTermed);
    EXPECT_EQ(s.lives[0]->generation, 2u);
    EXPECT_TRUE(s.logged("rank 0 on gpu0 was killed by signal 9 (SIGKILL); generation 1 began"))
        << "every death is told";
    s.start_all();
    EXPECT_TRUE(s.logged("generation 2 began"));
}

// Also of the one whose generation had hardly begun.
TEST(Restart, TellsEveryDeathWhereItEnds) {
    Simulation s = restarting_step(2, 1, restarting(1));
    start(s);
    s.exit(0, kKilled);
    s.exit(1, kTermed);
    s.start(0);
    s.exit(0, code(3));
    EXPECT_TRUE(s.logged("rank 0 on gpu0 was killed by signal 9 (SIGKILL); generation 1 began"));
    EXPECT_TRUE(s.logged("rank 0 on gpu0 exited with code 3; all restarts are used (--dp-restarts=1)"));
}

TEST(Restart, SaysWhyThereAreNoPorts) {
    Simulation s = restarting_step(1, 2);
    start(s);
    s.no_ports = "all are taken";
    s.exit(0, kKilled);
    s.exit(1, kTermed);
    EXPECT_TRUE(
        s.logged("rank 0 on gpu0 was killed by signal 9 (SIGKILL); the next generation cannot begin: all are "
                 "taken; ending the step"));
    EXPECT_TRUE(s.no_other_life[0]);
}

// ---- survivors (dp_rejoin) ----

// The ranks of a step of two nodes with two each; rank 1 is killed, and these can rejoin.
Simulation step_with_a_death(const std::vector<uint32_t>& enable_rejoin, const Settings& more = {}) {
    Simulation s = restarting_step(2, 2, more);
    start(s);
    for (const uint32_t rank : enable_rejoin) s.enable_rejoin(rank);
    s.exit(1, kKilled);
    s.pass(Time(1), Time(1));
    return s;
}

TEST(Rejoin, SurvivorsKeepTheirProcesses) {
    Simulation s = step_with_a_death({0, 2});
    EXPECT_EQ(s.ranks[0].peer_lost, "rank 1 on gpu0 was killed by signal 9 (SIGKILL)");
    EXPECT_EQ(s.ranks[0].aborted, "");
    EXPECT_EQ(s.ranks[3].aborted, s.ranks[0].peer_lost);
    EXPECT_EQ(s.spared[0], std::vector{std::set<uint32_t>{0}});
    EXPECT_EQ(s.spared[1], std::vector{std::set<uint32_t>{0}});
    s.exit(3, kTermed);
    s.rejoin(0);
    EXPECT_FALSE(s.lives[0] || s.lives[1]);  // rank 2 is awaited
    s.rejoin(2);
    for (const uint32_t rank : {0, 2}) {
        ASSERT_TRUE(s.ranks[rank].next_world);
        const wire::NextWorld& world = *s.ranks[rank].next_world;
        EXPECT_EQ(world.plan().generation(), 1u);
        EXPECT_EQ(world.plan().master_port(), 29500u);
        EXPECT_EQ(world.plan().replaced(), "1,3");
        EXPECT_EQ(world.plan().place().world_size(), 4u);
        EXPECT_EQ(world.local_rank(), 0u);
        EXPECT_EQ(world.plan().place().ranks(0), rank);
    }
    // The keepers of the others begin their next lives.
    EXPECT_EQ(s.survivors[0], std::set<uint32_t>{0});
    EXPECT_EQ(s.survivors[1], std::set<uint32_t>{0});
    EXPECT_FALSE(s.logged("generation 1 began"));
    s.start(1);
    s.start(3);
    EXPECT_TRUE(s.logged("generation 1 began"));
    // The same connections are those of the new ranks.
    for (const uint32_t rank : {1, 3}) s.hello(rank);
    for (const uint32_t rank : {0, 1, 2, 3}) s.arrive(rank, 7);
    for (const uint32_t rank : {0, 1, 2, 3}) EXPECT_EQ(s.ranks[rank].replies[7].status(), wire::OK);
}

TEST(Rejoin, SurvivesTwice) {
    Simulation s = step_with_a_death({0, 2, 3});
    for (const uint32_t rank : {0, 2, 3}) s.rejoin(rank);
    s.start(1);
    s.exit(1, kKilled);
    for (const uint32_t rank : {0, 2, 3}) s.ranks[rank].next_world.reset();
    s.rejoin(0, 0);  // of a generation that is past
    for (const uint32_t rank : {2, 3}) s.rejoin(rank, 1);
    EXPECT_FALSE(s.ranks[2].next_world);
    s.rejoin(0, 1);
    ASSERT_TRUE(s.ranks[2].next_world);
    EXPECT_EQ(s.ranks[2].next_world->plan().generation(), 2u);
    EXPECT_EQ(s.ranks[2].next_world->plan().replaced(), "1");
}

// Of a step whose ranks can rejoin: this one is killed, the others rejoin, and it starts anew.
void replace(Simulation& s, uint32_t victim, uint32_t generation) {
    s.exit(victim, kKilled);
    s.pass(Time(1), Time(1));
    for (uint32_t rank = 0; rank < s.ranks.size(); ++rank)
        if (rank != victim) s.rejoin(rank, generation);
    s.start(victim);
    s.hello(victim);
    s.enable_rejoin(victim);
}

// The kernel kills one rank after the other for their memory, and each time the others have just rejoined.
TEST(Rejoin, ManyThatDieOneAfterTheOtherAreOneFailure) {
    Simulation s = restarting_step(2, 4);
    start(s);
    for (uint32_t rank = 0; rank < 8; ++rank) s.enable_rejoin(rank);
    for (uint32_t victim = 0; victim < 7; ++victim) replace(s, victim, victim);
    EXPECT_TRUE(s.logged("generation 7 began"));
    EXPECT_FALSE(s.logged("without progress"));
}

// Who has survived only the last generation is of the program as it is: three of these end the step.
TEST(Rejoin, AProgramThatDiesOfItsRejoinEnds) {
    Simulation s = restarting_step(1, 3);
    start(s);
    for (uint32_t rank = 0; rank < 3; ++rank) s.enable_rejoin(rank);
    for (uint32_t generation = 0; generation < 6 && !s.logged("without progress"); ++generation)
        replace(s, generation % 3, generation);
    // Ranks 1 and 2 are older than the failure, rank 0 is not when it dies the second time.
    EXPECT_TRUE(s.logged("generation 4 began"));
    EXPECT_TRUE(s.logged("the third generation in a row to end without progress"));
}

TEST(Rejoin, ALateOrDeadProcessIsRestarted) {
    Settings more;
    more.grace_seconds = 5;
    Simulation s = step_with_a_death({0, 2, 3}, more);
    s.rejoin(2);
    s.exit(3, kKilled);  // it dies on the way
    s.pass(Time(4900));
    EXPECT_FALSE(s.logged("--dp-grace"));
    EXPECT_TRUE(s.spared[0].back().contains(0));
    s.pass(Time(1200));
    EXPECT_TRUE(
        s.logged("rank 0 on gpu0 did not rejoin (dp_rejoin) within 5 s (--dp-grace), so it is restarted"));
    EXPECT_EQ(s.signals[0].back().second, SIGKILL);
    EXPECT_TRUE(s.spared[0].back().empty());
    s.exit(0, kKilled);
    ASSERT_TRUE(s.ranks[2].next_world);
    EXPECT_EQ(s.ranks[2].next_world->plan().replaced(), "0-1,3");
}

// What it has forked holds its connection open.
TEST(Rejoin, ADeadRankIsNoSurvivor) {
    Simulation s = restarting_step(2, 2);
    start(s);
    for (const uint32_t rank : {0, 1, 2, 3}) s.enable_rejoin(rank);
    s.exit_first(1, kKilled);
    s.pass(Time(300));
    EXPECT_EQ(s.spared[0], std::vector{std::set<uint32_t>{0}});
    for (const uint32_t rank : {0, 2, 3}) s.rejoin(rank);
    ASSERT_TRUE(s.ranks[2].next_world);
    EXPECT_EQ(s.ranks[2].next_world->plan().replaced(), "1");
    EXPECT_EQ(s.survivors[0], std::set<uint32_t>{0});
}

TEST(Rejoin, WithoutGraceNobodySurvives) {
    Settings more;
    more.grace_seconds = 0;
    Simulation s = step_with_a_death({0, 2, 3}, more);
    EXPECT_EQ(s.ranks[0].aborted, "rank 1 on gpu0 was killed by signal 9 (SIGKILL)");
    EXPECT_EQ(s.ranks[0].peer_lost, "");
    end_the_others(s, 1);
    ASSERT_TRUE(s.lives[0]);
    EXPECT_TRUE(s.survivors[0].empty());
}

// The others think that it lives, so its death is one of the next generation.
TEST(Rejoin, ADeathAfterAllHaveComeIsOneOfTheNextGeneration) {
    for (const bool closes_only : {false, true}) {
        Simulation s = step_with_a_death({0, 2, 3});
        s.uncleared = {1};
        for (const uint32_t rank : {0, 2, 3}) s.rejoin(rank);
        closes_only ? s.vanish(0) : s.exit(0, kKilled);
        EXPECT_EQ(s.to_kill.empty(), !closes_only);  // it runs, outside of any generation
        s.to_kill.clear();
        EXPECT_FALSE(s.lives[0]);
        s.clear(1);
        ASSERT_TRUE(s.lives[0]);
        if (closes_only) {
            ASSERT_EQ(s.to_kill, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 0}}));
            s.exit_first(0, kKilled);
        }
        ASSERT_TRUE(s.ranks[2].next_world);
        EXPECT_EQ(s.ranks[2].next_world->plan().replaced(), "1");
        s.start(1);
        s.pass(Time(300));
        EXPECT_EQ(s.ranks[2].peer_lost, "rank 0 on gpu0 was killed by signal 9 (SIGKILL)");
    }
}

TEST(Rejoin, AStepThatEndsEndsSurvivorsToo) {
    Simulation s = step_with_a_death({0, 2, 3});
    s.rejoin(0);
    for (const uint32_t rank : {0, 1, 2, 3}) s.tell_to_end(rank);
    EXPECT_EQ(s.ranks[0].aborted,
              "rank 1 on gpu0 was killed by signal 9 (SIGKILL); the step was told to end before its next "
              "generation began");
    s.pass(Time(31000));
    EXPECT_TRUE(s.spared[0].back().empty());
}

TEST(Rejoin, ASurvivorIsToldItsNewRank) {
    Settings more;
    more.min_nodes = 1;
    Simulation s(3, 1, Time(10000), false, FailureAction::restart, more);
    start(s);
    for (const uint32_t rank : {0, 1, 2}) s.enable_rejoin(rank);
    s.cut(1);
    s.pass(Time(200));
    s.rejoin(0);
    s.rejoin(2);
    // Rank 2 is rank 1 now.
    ASSERT_TRUE(s.ranks[1].next_world);
    EXPECT_EQ(s.ranks[1].next_world->plan().place().ranks(0), 1u);
    EXPECT_EQ(s.ranks[1].next_world->plan().place().world_size(), 2u);
    EXPECT_EQ(s.ranks[1].next_world->plan().replaced(), "");
}

}  // namespace
}  // namespace dp
