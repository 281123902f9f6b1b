// SPDX-License-Identifier: Apache-2.0
//
// The broker's answers to dpctl: the state of the step, what its ranks do with their time, and where in their programs they are
// (broker.hpp).
#include <algorithm>

#include "base/text.hpp"
#include "engine/broker.hpp"
#include "framing.hpp"

namespace dp {

// A status of more bytes is told without single ranks.
constexpr size_t kMaxStatus = size_t{2} << 20;
// The most collectives in progress that a status has.
constexpr size_t kMaxCollectivesTold = 16;

wire::StepStatus Broker::status(bool summary, Time now) const {
    wire::StepStatus status;
    status.set_age_ms((now - started_).count());
    status.set_ending(abort_reason());
    status.set_generation(generation_->number);
    if (config_.settings.restarts_ranks()) status.set_restarts_left(restart_policy_.left());
    status.set_spares_left(members_.spares());
    *status.mutable_totals() = totals_;
    status.mutable_totals()->set_hang_ms(totals_.hang_ms() + generation_->hang_watch.lasts(now).count());
    status.set_slow_ranks(generation_->slow_ranks.count());
    members_.count(status);
    status.set_meetings_open(static_cast<uint32_t>(generation_->collectives.open()));
    for (uint32_t node = 0; node < members_.nodes().size(); ++node) {
        const int64_t silent = heartbeats_.silent_for(node, now).count();
        if (silent > 0) status.set_nodes_silent(status.nodes_silent() + 1);
        if (summary && silent == 0) continue;
        auto& told = *status.add_nodes();
        members_.report(node, told, !summary);
        told.set_silent_ms(silent);
    }
    status.set_nodes_here(status.nodes_here() - std::min(status.nodes_here(), status.nodes_silent()));
    if (summary) return status;
    status.mutable_restarts()->Add(restarts_.begin(), restarts_.end());
    generation_->collectives.report(status, now, kMaxCollectivesTold);
    if (status.ByteSizeLong() > kMaxStatus)
        for (auto& node : *status.mutable_nodes()) node.clear_ranks();
    return status;
}

void Broker::ask_usage(UsageRounds::Asker asker, Time now) {
    if (!members_.nodes()[asker.node].is_here()) return;
    const auto asked = usage_.ask(asker, nodes_here(), now);
    if (!asked) {
        wire::TellUsage told;
        told.set_connection(asker.connection);
        told.mutable_usage()->set_problem("more than " + std::to_string(kMaxUsageAskers) +
                                          " want to know at once; ask again");
        return send(asker.node, wrap(&wire::ToNode::mutable_usage, std::move(told)));
    }
    for (uint32_t node : *asked) send(node, wrap(&wire::ToNode::mutable_measure));
}

// At the end of a round: the answer is serialised once for all.
void Broker::tell_usage(Time now) {
    auto end = usage_.end(
        members_, [&](uint32_t node) { return why_not_measured(node, now); }, now);
    if (!end) return;
    end->usage.set_ending(abort_reason());
    wire::ToNode common;
    common.mutable_usage()->mutable_usage()->Swap(&end->usage);
    const SharedBytes rest = shared_bytes(common);
    for (const auto& asker : end->askers) {
        if (members_.nodes()[asker.node].lost) continue;
        wire::ToNode own;
        own.mutable_usage()->set_connection(asker.connection);
        out_.sends.emplace_back(asker.node, SharedMessage(std::move(own), rest));
    }
}

void Broker::ask_stacks(uint32_t node, const wire::AskStacks& asked, Time now) {
    if (!members_.nodes()[node].is_here()) return;
    const StackQuestions::Asker asker{node, asked.connection()};
    const auto question = stacks_.ask(asker, asked.wanted(), nodes_here(), members_, now);
    if (!question) {
        wire::StepStacks none;
        none.set_problem(question.error().message);
        return tell_stacks(asker, std::move(none));
    }
    for (const auto& [one, wanted] : question->nodes) {
        wire::ReadStacks read;
        read.set_question(question->question);
        *read.mutable_wanted() = wanted;
        send(one, wrap(&wire::ToNode::mutable_read_stacks, std::move(read)));
    }
}

void Broker::tell_stacks(const StackQuestions::Asker& asker, wire::StepStacks stacks) {
    if (members_.nodes()[asker.node].lost) return;
    wire::TellStacks told;
    told.set_connection(asker.connection);
    told.mutable_stacks()->Swap(&stacks);
    send(asker.node, wrap(&wire::ToNode::mutable_stacks, std::move(told)));
}

void Broker::tell_askers(Time now) {
    tell_usage(now);
    for (auto& end : stacks_.take_ended(
             members_, [&](uint32_t node) { return why_not_measured(node, now); }, now))
        tell_stacks(end.asker, std::move(end.stacks));
}

std::vector<uint32_t> Broker::nodes_here() const {
    std::vector<uint32_t> nodes;
    for (uint32_t node = 0; node < members_.nodes().size(); ++node)
        if (members_.nodes()[node].is_here()) nodes.push_back(node);
    return nodes;
}

std::string Broker::why_not_measured(uint32_t node, Time now) const {
    const auto& state = members_.nodes()[node];
    if (state.lost) return "lost";
    if (state.left) return "has left";
    if (!state.joined) return "not connected";
    const Time silent = heartbeats_.silent_for(node, now);
    return silent > Time(0) ? "silent for " + words(silent) : "no answer";
}

}  // namespace dp
