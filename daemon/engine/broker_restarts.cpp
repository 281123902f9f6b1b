// SPDX-License-Identifier: Apache-2.0
//
// The broker's restarts (--dp-on-failure=restart): how one generation ends and the next begins. See broker.hpp;
// restarts.hpp has which deaths allow it.
#include <algorithm>

#include "base/text.hpp"
#include "engine/broker.hpp"
#include "framing.hpp"

namespace dp {

// The most restarts that dpctl history has.
constexpr size_t kMaxRestartsTold = 1000;

void Broker::end_generation(const Death& cause, Time now) {
    if (abort_) return;
    // The ranks of a generation that is being ended die; a node must not.
    if (restart_ && restart_->is_ending() && !cause.final) return;
    const auto why_not = plan_sent_ ? restart_policy_.why_not(cause, all_told_to_end(now), now) : "";
    if (why_not) {
        Death last = cause;
        if (!why_not->empty()) last.reason += "; " + *why_not;
        return abort(last);
    }
    if (restart_) note_restart(now);  // the last ranks of this generation had not even started
    std::set<uint32_t> nodes;
    for (uint32_t node = 0; node < members_.nodes().size(); ++node)
        if (members_.nodes()[node].is_here()) nodes.insert(node);
    restart_.emplace(cause.reason, std::move(nodes), now);
    wire::EndGeneration end;
    *end.mutable_why() = abort_message(cause.reason, {Time(0), kEndsAfterTerm});
    end.mutable_why()->mutable_dead()->Add(cause.ranks.begin(), cause.ranks.end());
    to_all(wrap(&wire::ToNode::mutable_end_generation, std::move(end)));
}

// scancel, srun's Ctrl-C, the end of the time: Slurm tells all ranks, on all nodes within a moment.
void Broker::told_to_end(uint32_t rank, Time now) {
    told_to_end_[rank] = now;
    if (restart_ && all_told_to_end(now))
        abort({"the step was told to end before its next generation began"});
}

bool Broker::all_told_to_end(Time now) const {
    return told_to_end_.size() == members_.ranks().size() &&
           std::ranges::all_of(told_to_end_,
                               [&](const auto& told) { return now - told.second <= kToldHolds; });
}

void Broker::check_restart(Time now) {
    if (!restart_ || !restart_->is_ending() || now < restart_->deadline()) return;
    const std::vector<uint32_t> nodes(restart_->awaited().begin(), restart_->awaited().end());
    abort({"the ranks on " + members_.name_nodes(nodes) + " could not be ended within " +
           words(kEndsAfterTerm + kEndsAfterKill) +
           " (does a process wait for a file system?), so the next generation cannot begin"});
}

void Broker::generation_ended(uint32_t node) {
    if (restart_ && restart_->ended(node)) out_.renew_ports = true;
}

BrokerActions Broker::on_ports(const Try<MasterPorts>& ports, Time now) {
    if (abort_ || !restart_ || restart_->is_ending()) return take();
    if (ports) {
        ports_ = *ports;
        begin_generation(now);
    } else {
        abort({"the next generation cannot begin: " + ports.error().message});
    }
    return take();
}

void Broker::begin_generation(Time now) {
    // Deaths of the last generation are over, but a node that was lost meanwhile stays away.
    for (const Death& death : held_deaths_.take_all())
        if (death.final) return abort(death);
    members_.begin_generation();
    generation_.emplace(generation_->number + 1, members_, config_.settings.timeout(), now);
    restart_policy_.begin(now);
    send_plan();
}

// Once the last rank of the next generation has started.
void Broker::tell_restart(Time now) {
    if (!restart_ || restart_->is_ending() || !members_.all_started()) return;
    out_.log.push_back(restart_->line(generation_->number, now));
    note_restart(now);
    restart_.reset();
}

void Broker::note_restart(Time now) {
    auto& told = restarts_.emplace_back();
    told.set_generation(generation_->number);
    told.set_died_ms((restart_->died() - started_).count());
    told.set_began_ms((now - started_).count());
    told.set_reason(restart_->reason());
    if (restarts_.size() > kMaxRestartsTold) restarts_.pop_front();
}

// The keepers of ranks that have ended stay until all have: another death may begin their next life.
void Broker::finish_world() {
    if (!config_.settings.restarts_ranks() || abort_ || restart_ || held_deaths_.next_deadline() ||
        !members_.all_exited() || std::exchange(generation_->done, true))
        return;
    to_all(wrap(&wire::ToNode::mutable_world_done));
}

}  // namespace dp
