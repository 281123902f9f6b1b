// SPDX-License-Identifier: Apache-2.0
#include "engine/stack_questions.hpp"

#include <algorithm>

namespace dp {

Try<StackQuestions::Asked> StackQuestions::ask(const Asker& asker, const wire::StacksRequest& wanted,
                                               const std::vector<uint32_t>& here, const Membership& members,
                                               Time now) {
    if (questions_.size() >= kMaxStackQuestions)
        return fail("more than " + std::to_string(kMaxStackQuestions) + " want to know at once; ask again");
    const size_t world = members.ranks().size();
    const std::set<uint32_t> ranks(wanted.ranks().begin(), wanted.ranks().end());
    if (!ranks.empty() && *ranks.rbegin() >= world)
        return fail("there is no rank " + std::to_string(*ranks.rbegin()) + ": the world has ranks 0 to " +
                    std::to_string(world - 1));
    Question question{asker, now + kStacksDeadline, {}, {}, {}};
    for (uint32_t node = 0; node < members.nodes().size(); ++node) {
        const bool has_one = std::ranges::any_of(members.nodes()[node].ranks, [&](uint32_t rank) {
            return ranks.empty() || ranks.contains(rank);
        });
        if (!has_one) continue;
        question.nodes.insert(node);
        if (std::ranges::find(here, node) != here.end()) question.awaited.insert(node);
    }
    Asked asked{++last_, {question.awaited.begin(), question.awaited.end()}};
    questions_.emplace(asked.question, std::move(question));
    return asked;
}

void StackQuestions::answer(uint32_t node, const wire::NodeStacks& stacks, const Membership& members) {
    const auto found = questions_.find(stacks.question());
    if (found == questions_.end() || found->second.awaited.erase(node) == 0) return;
    wire::NodeStacks& kept = found->second.answers[node];
    if (stacks.ByteSizeLong() > kMaxNodeStacks) {
        kept.set_problem("its stacks are too large for one answer; ask with --rank for some of them");
        return;
    }
    kept = stacks;
    const auto& own = members.nodes()[node].ranks;
    const auto others = std::ranges::remove_if(*kept.mutable_ranks(), [&](const auto& rank) {
        return std::ranges::find(own, rank.rank()) == own.end();
    });
    kept.mutable_ranks()->erase(others.begin(), others.end());
}

void StackQuestions::remove(uint32_t node) {
    for (auto& [number, question] : questions_) question.awaited.erase(node);
}

std::vector<StackQuestions::End> StackQuestions::take_ended(
    const Membership& members, const std::function<std::string(uint32_t)>& why_late, Time now) {
    std::vector<End> ended;
    std::erase_if(questions_, [&](const auto& entry) {
        const Question& question = entry.second;
        if (!question.awaited.empty() && now < question.deadline) return false;
        End end{question.asker, {}};
        size_t bytes = 0;
        for (const uint32_t node : question.nodes) {
            wire::NodeStacks& one = *end.stacks.add_nodes();
            if (const auto answered = question.answers.find(node); answered != question.answers.end())
                one = answered->second;
            else
                one.set_problem(why_late(node));
            one.set_host(members.nodes()[node].host);
            bytes += one.ByteSizeLong();
            if (bytes <= kMaxStepStacks) continue;
            one.clear_ranks();
            one.set_problem("left out: the step is too large for one answer; ask with --rank for some ranks");
        }
        ended.push_back(std::move(end));
        return true;
    });
    return ended;
}

std::optional<Time> StackQuestions::next_deadline() const {
    std::optional<Time> next;
    for (const auto& [number, question] : questions_)
        next = next ? std::min(*next, question.deadline) : question.deadline;
    return next;
}

}  // namespace dp
