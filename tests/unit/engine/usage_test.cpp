// SPDX-License-Identifier: Apache-2.0
//
// What the ranks do with their time, asked of all nodes at once: everybody's answer in one, in time, whoever
// comes, goes or says nothing meanwhile.
#include "engine/usage.hpp"

#include <gtest/gtest.h>

#include "common/phase_page.hpp"
#include "simulation.hpp"

namespace dp {
namespace {

// Two ranks a node that compute; a node's clock is at 10 s and its number.
wire::NodeUsage computing(uint32_t node) {
    wire::NodeUsage usage;
    usage.set_now_ns(10'000'000'000 + node);
    for (uint32_t local = 0; local < 2; ++local) {
        auto* rank = usage.add_ranks();
        rank->set_rank(2 * node + local);
        rank->set_tiles(std::to_string(4 * local) + "-" + std::to_string(4 * local + 3));
        rank->set_pid(static_cast<int32_t>(1000 + 2 * node + local));
        rank->set_command("trainer");
        for (int64_t ns : {0, 700, 100, 200, 0}) rank->add_phase_ns(ns);
    }
    for (uint32_t tile = 0; tile < 2; ++tile) {
        auto* gpu = usage.add_gpus();
        gpu->set_tile(tile);
        if (tile == 1) gpu->set_busy_percent(80 + node);
        gpu->set_memory_used(1 + node);
        gpu->set_memory_total(141);
    }
    return usage;
}

Simulation step_of(uint32_t nodes) {
    Simulation s(nodes, 2, Time(60000));
    s.usage_of = computing;
    return s;
}

void all_there(Simulation& s) {
    s.join_all();
    for (uint32_t rank = 0; rank < s.ranks.size(); ++rank) s.start(rank);
    s.hello_all();
}

std::vector<std::string> problems(const wire::StepUsage& usage) {
    std::vector<std::string> out;
    for (const auto& node : usage.nodes()) out.push_back(node.problem());
    return out;
}

TEST(Usage, OfEveryNodeIsToldOnAnyOfThem) {
    for (uint32_t asker : {0U, 5U}) {
        Simulation s = step_of(3);
        all_there(s);
        s.ask_usage(asker);
        ASSERT_EQ(s.told_usage.size(), 1u);
        const auto& [rank, usage] = s.told_usage[0];
        EXPECT_EQ(rank, asker);
        EXPECT_EQ(usage.world_size(), 6u);
        ASSERT_EQ(usage.nodes_size(), 3);
        const auto& last = usage.nodes(2);
        EXPECT_EQ(last.host(), "gpu2");
        EXPECT_EQ(last.now_ns(), 10'000'000'002);
        ASSERT_EQ(last.ranks_size(), 2);
        EXPECT_EQ(last.ranks(1).rank(), 5u);
        EXPECT_EQ(last.ranks(1).local_rank(), 1u);
        EXPECT_EQ(last.ranks(1).tiles(), "4-7");
        EXPECT_EQ(last.ranks(1).pid(), 1005);
        EXPECT_EQ(last.ranks(1).command(), "trainer");
        EXPECT_EQ(last.ranks(1).state(), wire::StepStatus::HELLO);
        EXPECT_EQ(last.ranks(1).phase_ns(1), 700);
        ASSERT_EQ(last.gpus_size(), 2);
        EXPECT_FALSE(last.gpus(0).has_busy_percent());
        EXPECT_EQ(last.gpus(1).tile(), 1u);
        EXPECT_EQ(last.gpus(1).busy_percent(), 82u);
        EXPECT_EQ(last.gpus(1).memory_used(), 3u);
        EXPECT_EQ(last.gpus(1).memory_total(), 141u);
        EXPECT_EQ(problems(usage), (std::vector<std::string>{"", "", ""}));
        s.ask_usage(asker);  // on the same connection
        EXPECT_EQ(s.told_usage.size(), 2u);
    }
}

TEST(Usage, NeedsNoHelloAndIsRefusedWhereThereIsNoBroker) {
    Simulation s = step_of(2);
    s.ask_usage(0);
    EXPECT_EQ(s.ranks[0].replies[0].status(), wire::LOST);
    s.join_all();
    s.ask_usage(1);
    ASSERT_EQ(s.told_usage.size(), 1u);
    EXPECT_EQ(s.told_usage[0].second.nodes(0).ranks(0).state(), wire::StepStatus::NOT_STARTED);
}

TEST(Usage, GoesWithoutALateNodeWhichIsNotAskedTwice) {
    Simulation s = step_of(3);
    all_there(s);
    s.unmeasured = {1};
    s.ask_usage(0);
    s.pass(kUsageDeadline - Time(50));
    EXPECT_TRUE(s.told_usage.empty());
    s.pass(Time(50));
    ASSERT_EQ(s.told_usage.size(), 1u);
    EXPECT_EQ(problems(s.told_usage[0].second), (std::vector<std::string>{"", "no answer", ""}));
    EXPECT_EQ(s.told_usage[0].second.nodes(1).ranks(1).rank(), 3u) << "its ranks are named all the same";
    // Its late answer serves the next who asks.
    s.ask_usage(0);
    EXPECT_EQ(s.measured, (std::vector<uint32_t>{0, 1, 2, 0, 2}));
    s.measure(1);
    ASSERT_EQ(s.told_usage.size(), 2u);
    EXPECT_EQ(problems(s.told_usage[1].second), (std::vector<std::string>{"", "", ""}));
    // One that nobody waits for changes nothing, and the node is asked again.
    s.unmeasured.clear();
    s.measure(1);
    s.ask_usage(0);
    EXPECT_EQ(s.measured.size(), 8u);
    EXPECT_EQ(s.told_usage.size(), 3u);
}

TEST(Usage, ASilentNodeIsSaidToBeSilent) {
    Simulation s = step_of(2);
    all_there(s);
    s.frozen = {1};
    s.pass(Time(2000));
    s.ask_usage(0);
    s.pass(kUsageDeadline);
    ASSERT_EQ(s.told_usage.size(), 1u);
    EXPECT_EQ(s.told_usage[0].second.nodes(1).problem(), "silent for 2 s");
}

TEST(Usage, SeveralWhoAskShareARound) {
    Simulation s = step_of(3);
    all_there(s);
    s.unmeasured = {2};
    for (uint32_t rank : {0U, 1U, 1U, 3U}) s.ask_usage(rank);
    EXPECT_EQ(s.measured.size(), 3u);
    s.vanish(1);  // who does not wait any more is told nothing
    s.measure(2);
    ASSERT_EQ(s.told_usage.size(), 2u);
    EXPECT_EQ(s.told_usage[0].first, 0u);
    EXPECT_EQ(s.told_usage[1].first, 3u);
    EXPECT_EQ(s.broker->next_deadline() > s.now, true);
}

TEST(Usage, NodesComeAndGoMeanwhile) {
    Simulation s = step_of(4);
    for (uint32_t node : {0U, 1U, 2U}) s.join(node);
    s.unmeasured = {1, 2};
    s.ask_usage(0);
    s.join(3);
    s.cut(2);  // lost
    for (uint32_t rank : {2U, 3U}) s.exit(rank, 0);
    s.end(1);
    ASSERT_EQ(s.told_usage.size(), 1u) << "nobody is left to wait for";
    EXPECT_EQ(problems(s.told_usage[0].second),
              (std::vector<std::string>{"", "has left", "lost", "no answer"}));
    EXPECT_EQ(s.messages_to_nobody, 0u);
}

TEST(Usage, WhoWaitsIsToldWhenTheBrokerGoes) {
    Simulation s = step_of(2);
    all_there(s);
    s.unmeasured = {0, 1};
    s.ask_usage(2);
    s.lose_broker(1);
    EXPECT_EQ(s.ranks[2].replies[0].status(), wire::LOST);
    EXPECT_TRUE(s.told_usage.empty());
}

TEST(Usage, OfAnEndingStepSaysWhy) {
    Simulation s = step_of(1);
    all_there(s);
    s.exit(1, 3 << 8);
    s.ask_usage(0);
    ASSERT_EQ(s.told_usage.size(), 1u);
    EXPECT_EQ(s.told_usage[0].second.ending(), "rank 1 on gpu0 exited with code 3");
    EXPECT_EQ(s.told_usage[0].second.nodes(0).ranks(1).state(), wire::StepStatus::EXITED);
}

TEST(Usage, WhatANodeSaysIsCutAndOfItsOwnRanksOnly) {
    Simulation s = step_of(2);
    all_there(s);
    s.usage_of = [](uint32_t node) {
        wire::NodeUsage usage = computing(node);
        usage.set_host("somebody else");
        usage.set_node_rank(7);
        usage.set_problem("none");
        usage.mutable_ranks(0)->set_command(std::string(1000, 'x'));
        usage.mutable_ranks(0)->set_tiles("\n\x1b");
        usage.mutable_ranks(0)->set_phase_ns(2, -5);
        usage.mutable_ranks(0)->set_state(wire::StepStatus::EXITED);
        usage.mutable_ranks(1)->add_phase_ns(1);  // six
        usage.add_ranks()->set_rank(node == 0 ? 3 : 0);
        usage.add_ranks()->set_rank(4711);
        usage.mutable_gpus(1)->set_busy_percent(4711);
        for (int i = 0; i < 2 * kMaxGpus; ++i) usage.add_gpus();
        return usage;
    };
    s.ask_usage(0);
    ASSERT_EQ(s.told_usage.size(), 1u);
    const auto& node = s.told_usage[0].second.nodes(1);
    EXPECT_EQ(node.host(), "gpu1");
    EXPECT_EQ(node.node_rank(), 1u);
    EXPECT_EQ(node.problem(), "");
    ASSERT_EQ(node.ranks_size(), 2);
    EXPECT_EQ(node.ranks(0).rank(), 2u);
    EXPECT_LE(node.ranks(0).command().size(), kMaxCommand + 3);
    EXPECT_EQ(node.ranks(0).tiles(), "??");
    EXPECT_EQ(node.ranks(0).phase_ns(2), 0);
    EXPECT_EQ(node.ranks(0).state(), wire::StepStatus::HELLO);
    EXPECT_EQ(node.ranks(1).phase_ns_size(), 0);
    EXPECT_EQ(node.gpus(1).busy_percent(), 100u);
    EXPECT_EQ(node.gpus_size(), kMaxGpus);
}

TEST(Usage, OfAVeryLargeStepFitsAFrame) {
    constexpr uint32_t kNodes = 64;
    constexpr uint32_t kRanksANode = 512;
    Membership members(kNodes * kRanksANode, kNodes, {});
    UsageRounds rounds;
    std::vector<uint32_t> nodes;
    for (uint32_t node = 0; node < kNodes; ++node) {
        wire::Join join;
        join.set_node_rank(node);
        for (uint32_t i = 0; i < kRanksANode; ++i) join.add_ranks(node * kRanksANode + i);
        ASSERT_FALSE(members.join(join, Time(0)));
        nodes.push_back(node);
    }
    EXPECT_EQ(rounds.ask({0, 1}, nodes, Time(0)), nodes);
    for (uint32_t node : nodes) {
        wire::NodeUsage usage;
        for (uint32_t i = 0; i < kRanksANode; ++i) {
            auto* rank = usage.add_ranks();
            rank->set_rank(node * kRanksANode + i);
            rank->set_command(std::string(60, 'c'));
            for (size_t phase = 0; phase < kPhases; ++phase) rank->add_phase_ns(INT64_MAX);
        }
        rounds.answer(node, usage, members);
    }
    const auto end = rounds.end(
        members, [](uint32_t) { return std::string("no answer"); }, Time(0));
    ASSERT_TRUE(end);
    EXPECT_LT(end->usage.ByteSizeLong(), kMaxUsage + kMaxUsage / 8);
    EXPECT_EQ(end->usage.nodes(0).ranks_size(), static_cast<int>(kRanksANode));
    EXPECT_EQ(end->usage.nodes(kNodes - 1).ranks_size(), 0);
    EXPECT_NE(end->usage.nodes(kNodes - 1).problem().find("too large"), std::string::npos);
}

TEST(Usage, OnlySoManyMayWait) {
    UsageRounds rounds;
    for (uint64_t connection = 0; connection < kMaxUsageAskers; ++connection)
        EXPECT_TRUE(rounds.ask({0, connection}, {0, 1}, Time(0)));
    EXPECT_FALSE(rounds.ask({0, kMaxUsageAskers}, {0, 1}, Time(0)));
    EXPECT_TRUE(rounds.ask({0, 3}, {0, 1}, Time(0))) << "it waits already";
    Membership members(2, 2, {});
    EXPECT_EQ(rounds
                  .end(
                      members, [](uint32_t) { return ""; }, kUsageDeadline)
                  ->askers.size(),
              kMaxUsageAskers);
}

TEST(Phases, APageIsOpenedForARankAloneAndMeasuredWithIt) {
    Simulation s = step_of(1);
    s.join_all();
    wire::FromRank phases;
    phases.mutable_phases()->set_fd(12);
    s.from_rank(0, phases);
    EXPECT_TRUE(s.pages.empty()) << "no hello first";
    s.hello(1);
    s.from_rank(1, phases);
    ASSERT_EQ(s.pages.size(), 1u);
    EXPECT_EQ(s.pages[0].connection, 2u);
    EXPECT_EQ(s.pages[0].fd, 12);
    wire::ToNode measure;
    measure.mutable_measure();
    const auto actions = s.nodes[0]->on_broker(measure, s.now);
    ASSERT_TRUE(actions.measure);
    EXPECT_EQ(*actions.measure, (std::vector<std::optional<ConnectionId>>{std::nullopt, ConnectionId{2}}));
}

}  // namespace
}  // namespace dp
