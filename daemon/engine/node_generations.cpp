// SPDX-License-Identifier: Apache-2.0
//
// The Node's generations (--dp-on-failure=restart): its keepers, the end of a generation and the next life (node.hpp).
#include <algorithm>
#include <csignal>

#include "common/wait_status.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {

void Node::end_generation(const wire::EndGeneration& message, Time now) {
    if (termination_.abort()) return;
    generation_.is_ending = true;
    termination_.begin(message.why(), now);
    spare_survivors(now + config_.settings.grace());
    tell_end(message.why());
    clear_if_all_ended();
}

void Node::spare_survivors(Time until) {
    std::set<uint32_t> survivors;
    if (config_.settings.grace() > Time(0)) survivors = ranks_.that_can_rejoin();
    // What a dead one has forked may hold its connection open.
    for (uint32_t local = 0; local < config_.ranks.size(); ++local)
        if (ranks_.has_exited(local)) survivors.erase(config_.ranks[local]);
    survivors_.begin(survivors, until);
}

// Of the generation, to its ranks.
void Node::tell_end(const wire::Abort& why) {
    wire::PeerLost lost;
    lost.set_reason(why.reason());
    *lost.mutable_dead() = why.dead();
    const SharedBytes for_survivors = shared_bytes(wrap(&wire::ToRank::mutable_peer_lost, std::move(lost)));
    const SharedBytes for_others = shared_bytes(wrap(&wire::ToRank::mutable_abort, why));
    for (const auto& [connection, rank] : ranks_.connections())
        out_.to_ranks.emplace_back(
            connection, SharedMessage(wire::ToRank(), survivors_.has(rank) ? for_survivors : for_others));
}

// A process that can rejoin leaves the generation that ends.
void Node::rejoin(uint32_t rank, const wire::Rejoin& message) {
    if (message.generation() != generation_.number || !generation_.is_ending) return;
    survivors_.come(rank);
    clear_if_all_ended();
}

void Node::progress(uint32_t rank, uint64_t step) {
    ranks_.progress(rank, step);
    if (generation_.number > 0 && !generation_.is_ending && !std::exchange(generation_.has_stepped, true))
        outbox_.send(event_of(rank, [&](wire::RankEvent& e) { e.set_first_step(step); }));
}

// From now on survivors end like all other ranks.
void Node::give_up_survivors(Time now) {
    survivors_ = Survivors();
    for (const auto& [local, status] : std::exchange(late_exits_, {})) exited(local, status, now);
}

// It has closed its world, or died.
void Node::drop_survivor(uint32_t rank, Time now) {
    if (!generation_.is_ending) return;
    const auto local = static_cast<uint32_t>(std::ranges::find(config_.ranks, rank) - config_.ranks.begin());
    if (survivors_.is_closed() && survivors_.has(rank) && !late_exits_.contains(local))
        out_.kill_ranks.push_back(local);  // it runs, and has left its place
    if (!survivors_.drop(rank)) return;
    wire::Abort why = *termination_.abort();
    termination_.begin(std::move(why), now);  // now it gets SIGTERM, too
    clear_if_all_ended();
}

void Node::drop_late_survivors(Time now) {
    for (const uint32_t rank : survivors_.drop_late(now)) {
        out_.log.push_back("rank " + std::to_string(rank) + " on " + config_.host +
                           " did not rejoin (dp_rejoin) " +
                           (lost_broker_ ? "soon after rank 0's daemon was lost"
                                         : "within " + words(config_.settings.grace()) + " (--dp-grace)") +
                           ", so it is restarted");
        wire::Abort why = *termination_.abort();
        termination_.begin(std::move(why), now);
    }
}

bool Node::has_ended(uint32_t local_rank) const {
    return ranks_.has_exited(local_rank) || survivors_.has_come(config_.ranks[local_rank]);
}

bool Node::all_ended() const {
    for (uint32_t local = 0; local < config_.ranks.size(); ++local)
        if (!has_ended(local)) return false;
    return true;
}

void Node::clear_if_all_ended() {
    if (generation_.is_ending && !generation_.is_last && !survivors_.is_closed() && all_ended())
        out_.clear_ranks = true;
}

NodeActions Node::on_cleared(Time now) {
    // Before all have ended, a keeper may be about to begin a life.
    if (!generation_.is_ending || generation_.is_last || survivors_.is_closed() || !all_ended())
        return take();
    ranks_.drop_exits();
    survivors_.close();
    if (lost_broker_) {
        lost_broker_->is_cleared = true;
        elect_if_ready(now);
        return take();
    }
    wire::GenerationEnded ended;
    const std::vector<uint32_t> rejoined = survivors_.ranks();
    ended.mutable_rejoined()->Add(rejoined.begin(), rejoined.end());
    if (const auto step = ranks_.furthest_step()) ended.set_step(*step);
    outbox_.send(wrap(&wire::FromNode::mutable_generation_ended, std::move(ended)));
    return take();
}

void Node::tell_told(uint32_t rank) {
    outbox_.send(event_of(rank, [](wire::RankEvent& e) { e.set_told_to_end(true); }));
}

// Of the last generation only survivors are alive, so no other open connection can be a rank's.
void Node::begin_generation(const wire::Plan& message, Time now) {
    LocalRanks old = std::move(ranks_);
    const std::vector<uint32_t> before = take_place(message.place());
    ++generation_.number;
    generation_.is_ending = generation_.has_lost_broker = generation_.has_stepped = false;
    const Survivors survivors = std::exchange(survivors_, Survivors());
    waiting_.clear();
    deaths_.Clear();
    const std::string reason = termination_.abort() ? termination_.abort()->reason() : "";
    termination_.reset();
    std::set<ConnectionId> kept;
    for (uint32_t local = 0; local < before.size(); ++local) {
        if (!survivors.has(before[local])) continue;
        out_.survivors.insert(local);
        const auto connection = old.connection_of(before[local]);
        if (local < config_.ranks.size())
            started(config_.ranks[local], connection ? old.pid_of(*connection) : 0, now);
        if (connection && local < config_.ranks.size()) {
            kept.insert(*connection);
            survive(local, *connection, old.pid_of(*connection), message, reason, now);
        } else {
            out_.kill_ranks.push_back(local);  // it has closed its world, or has no rank any more
        }
    }
    for (const auto& [connection, rank] : old.connections())
        if (!kept.contains(connection)) out_.close.push_back(connection);
    for (const auto& [local, status] : std::exchange(late_exits_, {}))
        if (local < config_.ranks.size()) exited(local, status, now);
    tell_what_tasks_were_told(now);
}

// Returns the ranks that the node had.
std::vector<uint32_t> Node::take_place(const wire::Place& place) {
    std::vector<uint32_t> before = std::exchange(config_.ranks, {place.ranks().begin(), place.ranks().end()});
    config_.world_size = place.world_size();
    ranks_ = LocalRanks(config_.ranks);
    pending_arrivals_ = PendingArrivals(config_.ranks);
    return before;
}

// What Slurm has told a task holds for its next ranks, too.
void Node::tell_what_tasks_were_told(Time now) {
    for (const auto& [task, at] : told_tasks_)
        if (task < config_.ranks.size() && now - at <= kToldHolds) tell_told(config_.ranks[task]);
}

// The process of a survivor is a rank of the generation that begins.
void Node::survive(uint32_t local_rank, ConnectionId connection, int32_t pid, const wire::Plan& plan,
                   const std::string& reason, Time now) {
    const uint32_t rank = config_.ranks[local_rank];
    ranks_.open(connection, rank, pid);
    ranks_.enable_rejoin(connection);
    wire::NextWorld world;
    *world.mutable_plan() = plan;
    world.mutable_plan()->clear_roll();
    world.set_local_rank(local_rank);
    world.set_node_addr(broker_.own_address);
    world.set_reason(reason);
    out_.to_ranks.emplace_back(connection, wrap(&wire::ToRank::mutable_next_world, std::move(world)));
    tell_hello(rank, pid, now);
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
        if (termination_.has_signalled()) out_.kill_ranks.push_back(event.local_rank);
    } else if (event.kind == ControlEvent::Kind::told) {
        tell_told(rank);
    } else if (event.kind == ControlEvent::Kind::exit) {
        if (generation_.is_ending && survivors_.is_closed() && survivors_.has(rank)) {
            late_exits_[event.local_rank] = event.value;
            return take();
        }
        survivors_.drop(rank);
        exited(event.local_rank, event.value, now);
        clear_if_all_ended();
        if (ranks_.all_exited()) outbox_.flush();  // the keepers wait for the broker's word
    }
    return take();
}

// The task of the launcher is gone, and with it the rank: nobody can begin its next life here.
void Node::keeper_ended(uint32_t local_rank, int status, Time now) {
    if (generation_.is_last || leaving_.cancelled) {
        // A keeper that knows that no other life comes reports its rank's end only by its own.
        if (local_rank < config_.ranks.size() && !leaving_.gave_up) exited(local_rank, status, now);
        return;
    }
    const std::string whose = local_rank < config_.ranks.size()
                                  ? "rank " + std::to_string(config_.ranks[local_rank])
                                  : "a spare task";
    give_up("the keeper of " + whose + " on " + config_.host + " " + describe_status(status));
    generation_.is_last = true;  // one line is enough
}

}  // namespace dp
