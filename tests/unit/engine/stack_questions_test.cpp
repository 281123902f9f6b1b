// SPDX-License-Identifier: Apache-2.0
//
// What ranks are doing, call by call, asked of the nodes that have them: the answer of each to its own question, in time,
// whoever is silent, lost or says too much meanwhile.
#include "engine/stack_questions.hpp"

#include <gtest/gtest.h>

#include "simulation.hpp"

namespace dp {
namespace {

Simulation step_of(uint32_t nodes) {
    Simulation s(nodes, 2, Time(60000));
    s.join_all();
    for (uint32_t rank = 0; rank < s.ranks.size(); ++rank) s.start(rank);
    s.hello_all();
    return s;
}

wire::NodeStacks stacks_of(uint64_t question, std::initializer_list<uint32_t> ranks) {
    wire::NodeStacks stacks;
    stacks.set_question(question);
    for (const uint32_t number : ranks) {
        auto& rank = *stacks.add_ranks();
        rank.set_rank(number);
        rank.add_threads()->add_frames()->set_function("all_reduce");
    }
    return stacks;
}

// The node's daemon has read what it was asked for.
void answer(Simulation& s, const std::pair<uint32_t, NodeActions::StacksToRead>& asked,
            std::initializer_list<uint32_t> ranks) {
    const auto [node, read] = asked;
    s.answer(node, wrap(&wire::FromNode::mutable_stacks, stacks_of(read.asked.question(), ranks)));
}

std::string text(const wire::StepStacks& stacks) {
    std::string out = stacks.problem();
    for (const auto& node : stacks.nodes()) {
        out += node.host() + ":" + node.problem();
        for (const auto& rank : node.ranks()) out += " " + std::to_string(rank.rank());
        out += "; ";
    }
    return out;
}

TEST(StackQuestions, AllNodesAnswerOnAnyOfThem) {
    Simulation s = step_of(3);
    s.ask_stacks(5);
    ASSERT_EQ(s.stacks_to_read.size(), 3u);
    EXPECT_EQ(s.stacks_to_read[1].second.ranks.size(), 2u) << "both ranks of the node";
    const auto asked = s.stacks_to_read;
    answer(s, asked[0], {0, 1});
    answer(s, asked[2], {4, 5});
    EXPECT_TRUE(s.told_stacks.empty());
    answer(s, asked[1], {2, 3});
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(text(s.told_stacks[0]), "gpu0: 0 1; gpu1: 2 3; gpu2: 4 5; ");
    EXPECT_EQ(s.told_stacks[0].nodes(0).ranks(0).threads(0).frames(0).function(), "all_reduce");
}

TEST(StackQuestions, OnlyTheNodesOfTheWantedRanksAreAsked) {
    Simulation s = step_of(3);
    s.ask_stacks(0, {3});
    ASSERT_EQ(s.stacks_to_read.size(), 1u);
    const auto asked = s.stacks_to_read.front();
    EXPECT_EQ(asked.first, 1u);
    ASSERT_EQ(asked.second.ranks.size(), 1u);
    EXPECT_EQ(asked.second.ranks.begin()->first, 1u) << "its second rank";
    answer(s, asked, {3});
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(text(s.told_stacks[0]), "gpu1: 3; ");
}

TEST(StackQuestions, ARankThatDoesNotExistIsNamed) {
    Simulation s = step_of(2);
    s.ask_stacks(0, {1, 4});
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(text(s.told_stacks[0]), "there is no rank 4: the world has ranks 0 to 3");
    EXPECT_TRUE(s.stacks_to_read.empty());
}

TEST(StackQuestions, ANodeThatDoesNotAnswerInTimeIsLeftOut) {
    Simulation s = step_of(2);
    s.ask_stacks(0);
    const auto asked = s.stacks_to_read;
    answer(s, asked[0], {0, 1});
    s.pass(kStacksDeadline - Time(50));
    EXPECT_TRUE(s.told_stacks.empty());
    s.pass(Time(50));
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(text(s.told_stacks[0]), "gpu0: 0 1; gpu1:no answer; ");
    answer(s, asked[1], {2, 3});  // nobody waits for it any more
    EXPECT_EQ(s.told_stacks.size(), 1u);
}

TEST(StackQuestions, ANodeThatHasNotComeIsNamed) {
    Simulation s(3, 2, Time(60000));
    s.join(0);
    s.join(2);
    s.ask_stacks(0);
    answer(s, s.stacks_to_read[0], {0, 1});
    answer(s, s.stacks_to_read[1], {4, 5});
    s.ask_stacks(0, {5});
    answer(s, s.stacks_to_read[2], {5});
    s.ask_stacks(0, {3});
    ASSERT_EQ(s.told_stacks.size(), 3u);
    EXPECT_EQ(text(s.told_stacks[0]), "gpu0: 0 1; gpu1:not connected; gpu2: 4 5; ");
    EXPECT_EQ(text(s.told_stacks[1]), "gpu2: 5; ");
    EXPECT_EQ(text(s.told_stacks[2]), "gpu1:not connected; ");
}

TEST(StackQuestions, ARequestOfTooManyRanksGoesNoFurther) {
    Simulation s = step_of(2);
    wire::FromRank question;
    for (size_t i = 0; i < kMaxStacksRequest; ++i) question.mutable_stacks()->add_ranks(0);
    s.from_rank(1, question);
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(s.told_stacks[0].problem(), "too many ranks at once; ask for all of them, without --rank");
    EXPECT_TRUE(s.stacks_to_read.empty());
}

TEST(StackQuestions, WhatDoesNotFitIntoOneAnswerIsCounted) {
    constexpr uint32_t kNodes = 20;
    Simulation s = step_of(kNodes);
    s.ask_stacks(0);
    for (const auto& asked : std::vector(s.stacks_to_read)) {
        wire::NodeStacks large = stacks_of(asked.second.asked.question(), {2 * asked.first});
        large.mutable_ranks(0)->set_unknown(std::string(kMaxNodeStacks / 2, 'x'));
        s.answer(asked.first, wrap(&wire::FromNode::mutable_stacks, large));
    }
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(s.told_stacks[0].nodes_size(), 15);
    EXPECT_EQ(s.told_stacks[0].problem(),
              "5 nodes left out: the step is too large for one answer; ask for some ranks with --rank");
}

TEST(StackQuestions, TwoWhoAskGetAnAnswerEach) {
    Simulation s = step_of(1);
    s.ask_stacks(0, {0});
    s.ask_stacks(1, {1});
    const auto asked = s.stacks_to_read;
    ASSERT_EQ(asked.size(), 2u);
    answer(s, asked[1], {1});
    answer(s, asked[0], {0});
    ASSERT_EQ(s.told_stacks.size(), 2u);
    EXPECT_EQ(text(s.told_stacks[0]), "gpu0: 1; ");
    EXPECT_EQ(text(s.told_stacks[1]), "gpu0: 0; ");
}

TEST(StackQuestions, ANodeSpeaksForItsOwnRanksOnlyAndNotTooMuch) {
    Simulation s = step_of(2);
    s.ask_stacks(0);
    const auto asked = s.stacks_to_read;
    answer(s, asked[0], {0, 1, 2, 99});
    wire::NodeStacks large = stacks_of(asked[1].second.asked.question(), {2, 3});
    large.mutable_ranks(0)->set_unknown(std::string(kMaxNodeStacks, 'x'));
    s.answer(1, wrap(&wire::FromNode::mutable_stacks, large));
    ASSERT_EQ(s.told_stacks.size(), 1u);
    EXPECT_EQ(
        text(s.told_stacks[0]),
        "gpu0: 0 1; gpu1:its stacks are too large for one answer; ask for some of its ranks with --rank; ");
}

TEST(StackQuestions, SoManyMayWaitAtOnce) {
    Membership members(1, 1, {});
    wire::Join join;
    join.add_ranks(0);
    ASSERT_FALSE(members.join(join, Time(0)));
    StackQuestions questions;
    for (uint64_t i = 0; i < kMaxStackQuestions; ++i)
        ASSERT_TRUE(questions.ask({0, i}, {}, {0}, members, Time(0)));
    const auto refused = questions.ask({0, 99}, {}, {0}, members, Time(0));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "16 `dpctl stacks` of this step are under way already; try again");
    EXPECT_EQ(questions.next_deadline(), kStacksDeadline);
    const auto late = [](uint32_t) { return std::string("no answer"); };
    EXPECT_TRUE(questions.take_ended(members, late, kStacksDeadline - Time(1)).empty());
    EXPECT_EQ(questions.take_ended(members, late, kStacksDeadline).size(), kMaxStackQuestions);
    EXPECT_FALSE(questions.next_deadline());
}

}  // namespace
}  // namespace dp
