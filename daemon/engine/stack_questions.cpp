// SPDX-License-Identifier: Apache-2.0
#include "engine/stack_questions.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace dp {

Try<StackQuestions::Asked> StackQuestions::ask(const Asker& asker, const wire::StacksRequest& wanted,
                                               const std::vector<uint32_t>& here, const Membership& members,
                                               Time now) {
    if (questions_.size() >= kMaxStackQuestions)
        return fail(std::to_string(kMaxStackQuestions) +
                    " `dpctl stacks` of this step are under way already; try again");
    const size_t world = members.ranks().size();
    const std::set<uint32_t> ranks(wanted.ranks().begin(), wanted.ranks().end());
    if (!ranks.empty() && *ranks.rbegin() >= world)
        return fail("there is no rank " + std::to_string(*ranks.rbegin()) + ": the world has ranks 0 to " +
                    std::to_string(world - 1));
    Question question{asker, now + kStacksDeadline, {}, {}, {}};
    Asked asked{++last_, {}};
    size_t found = 0;
    for (uint32_t node = 0; node < members.nodes().size(); ++node) {
        wire::StacksRequest own;
        own.set_threads(wanted.threads());
        for (const uint32_t rank : members.nodes()[node].ranks)
            if (ranks.empty() || ranks.contains(rank)) own.add_ranks(rank);
        if (own.ranks().empty()) continue;
        found += static_cast<size_t>(own.ranks_size());
        question.nodes.insert(node);
        if (std::ranges::find(here, node) == here.end()) continue;
        question.awaited.insert(node);
        asked.nodes.emplace(node, std::move(own));
    }
    // The others are on nodes that have not come yet.
    if (found < (ranks.empty() ? world : ranks.size()))
        for (uint32_t node = 0; node < members.nodes().size(); ++node)
            if (!members.nodes()[node].joined) question.nodes.insert(node);
    questions_.emplace(asked.question, std::move(question));
    return asked;
}

void StackQuestions::answer(uint32_t node, const wire::NodeStacks& stacks, const Membership& members) {
    const auto found = questions_.find(stacks.question());
    if (found == questions_.end() || found->second.awaited.erase(node) == 0) return;
    wire::NodeStacks& kept = found->second.answers[node];
    if (stacks.ByteSizeLong() > kMaxNodeStacks) {
        kept.set_problem("its stacks are too large for one answer; ask for some of its ranks with --rank");
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
        size_t bytes = 0, left_out = 0;
        for (const uint32_t node : question.nodes) {
            wire::NodeStacks one;
            if (const auto answered = question.answers.find(node); answered != question.answers.end())
                one = answered->second;
            else
                one.set_problem(why_late(node));
            one.set_host(members.nodes()[node].host);
            const size_t size = one.ByteSizeLong();
            if (bytes + size > kMaxStepStacks) {
                ++left_out;
                continue;
            }
            bytes += size;
            end.stacks.add_nodes()->Swap(&one);
        }
        if (left_out > 0)
            end.stacks.set_problem(
                plural(left_out, "node") +
                " left out: the step is too large for one answer; ask for some ranks with --rank");
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
