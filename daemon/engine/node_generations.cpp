// SPDX-License-Identifier: Apache-2.0
//
// The Node's generations (--dp-on-failure=restart): its keepers, the end of a generation and the next life (node.hpp).
#include <csignal>

#include "common/wait_status.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {

void Node::end_generation(const wire::EndGeneration& message, Time now) {
    if (termination_.abort()) return;
    generation_.is_ending = true;
    termination_.begin(message.why(), now);
    tell_ranks(wrap(&wire::ToRank::mutable_abort, message.why()));
    clear_if_all_exited();
}

void Node::clear_if_all_exited() {
    if (generation_.is_ending && !generation_.is_last && ranks_.all_exited()) out_.clear_ranks = true;
}

NodeActions Node::on_cleared(Time now) {
    // Before all have exited, a keeper may be about to begin one.
    if (!generation_.is_ending || generation_.is_last || !ranks_.all_exited()) return take();
    ranks_.drop_exits();
    if (lost_broker_) {
        lost_broker_->is_cleared = true;
        elect_if_ready(now);
        return take();
    }
    outbox_.send(wrap(&wire::FromNode::mutable_generation_ended));
    return take();
}

void Node::tell_told(uint32_t rank) {
    outbox_.send(event_of(rank, [](wire::RankEvent& e) { e.set_told_to_end(true); }));
}

// Nothing of the last generation is alive, so no open connection can be a rank's.
void Node::begin_generation(const NodePlan::Place& place, Time now) {
    config_.ranks = place.ranks;
    config_.world_size = place.world_size;
    ++generation_.number;
    generation_.is_ending = false;
    for (const auto& [connection, rank] : ranks_.connections()) out_.close.push_back(connection);
    ranks_ = LocalRanks(config_.ranks);
    pending_arrivals_ = PendingArrivals(config_.ranks);
    waiting_.clear();
    deaths_.Clear();
    termination_.reset();
    // What Slurm has told a task holds for its next ranks, too.
    for (const auto& [task, at] : told_tasks_)
        if (task < config_.ranks.size() && now - at <= kToldHolds) tell_told(config_.ranks[task]);
}

void Node::no_other_life() {
    if (config_.settings.restarts_ranks() && !std::exchange(generation_.is_last, true))
        out_.no_other_life = true;
}

NodeActions Node::on_keeper(const ControlEvent& event, Time now) {
    if (event.kind == ControlEvent::Kind::told) told_tasks_[event.local_rank] = now;
    if (event.local_rank >= config_.ranks.size()) return take();
    const uint32_t rank = config_.ranks[event.local_rank];
    if (event.kind == ControlEvent::Kind::task) {
        started(rank, event.value, now);
        // It began just as the others were signalled, and has nothing to save.
        if (termination_.abort()) out_.kill_rank = event.local_rank;
    } else if (event.kind == ControlEvent::Kind::told) {
        tell_told(rank);
    } else if (event.kind == ControlEvent::Kind::exit) {
        exited(event.local_rank, event.value, now);
        clear_if_all_exited();
        if (ranks_.all_exited()) outbox_.flush();  // the keepers wait for the broker's word
    }
    return take();
}

// The task of the launcher is gone, and with it the rank: nobody can begin its next life here.
void Node::keeper_ended(uint32_t local_rank, int status) {
    if (generation_.is_last || leaving_.cancelled) return;
    const std::string whose = local_rank < config_.ranks.size()
                                  ? "rank " + std::to_string(config_.ranks[local_rank])
                                  : "a spare task";
    give_up("the keeper of " + whose + " on " + config_.host + " " + describe_status(status));
    generation_.is_last = true;  // one line is enough
}

}  // namespace dp
