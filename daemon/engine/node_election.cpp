// SPDX-License-Identifier: Apache-2.0
//
// The Node without its broker (--dp-spares, --dp-min-nodes): it ends its ranks, except for those that rejoin, takes part
// in the election of another broker, and follows that or is it (node.hpp; election.hpp).
#include <csignal>

#include "base/text.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {

// Kills the ranks at once, because they may begin elsewhere. If the broker has only fallen silent, those that can rejoin
// have a moment to do so: half of the time until a broker that lives may begin them elsewhere. One whose connection has
// closed may do that at once, and the others count on a broker's own node to wait for nobody (OldWorldEnds::broker).
void Node::end_ranks_without_broker(LostBroker loss, std::optional<Time> silent_since, Time now) {
    lease_.reset();
    const wire::Abort why = abort_message(loss.reason, {Time(0), Time(0)});
    const bool was_ending = std::exchange(generation_.is_ending, true);
    generation_.has_lost_broker = true;
    const Time until =
        silent_since.value_or(Time(0)) +
        std::min<Time>(rejoins_without_broker(config_), (dead_after(config_) - fenced_after(config_)) / 2);
    if (!silent_since || now >= until || config_.broker) {
        give_up_survivors(now);
    } else if (was_ending) {
        survivors_.begin_without_broker(until);
        for (const auto& [local, status] : std::exchange(late_exits_, {})) {
            survivors_.drop(config_.ranks[local]);
            exited(local, status, now);
        }
    } else {
        spare_survivors(until);
    }
    out_.signal_ranks = SIGKILL;
    out_.clear_ranks = true;  // also what they fork meanwhile
    termination_.begin(why, now);
    if (!was_ending) tell_end(why);
    lost_broker_ = std::move(loss);
}

// The ranks have a grace period to end in, but nodes that have not heard of the abort may start them elsewhere. So
// without a broker they are killed at once.
void Node::kill_without_broker() {
    if (!config_.settings.outlives_nodes() || !published_ || !is_aborted()) return;
    lease_.reset();
    out_.signal_ranks = SIGKILL;
    out_.clear_ranks = true;
}

void Node::elect_if_ready(Time now) {
    if (lost_broker_->is_held_back || !lost_broker_->is_cleared || election_.is_under_way() ||
        leaving_.gave_up)
        return;
    perform(election_.begin(lost_broker_->ends, now), now);
}

void Node::perform(const Election::Actions& actions, Time now) {
    if (actions.seek || actions.disconnect) {
        out_.seek = actions.seek;
        out_.disconnect = actions.disconnect;
        outbox_.reopen();
    }
    for (const uint32_t node : actions.refused) {
        supporters_.erase(node);
        out_.refused.push_back(node);
    }
    if (actions.elected) become_broker();
    if (actions.over) end_without_broker(*actions.over, now);
}

NodeActions Node::on_supporter(uint32_t node, const wire::FromNode& message, Time now) {
    if (!message.has_join())
        return take();  // the heartbeat of one that takes this node for its broker already
    if (!message.join().has_support() || message.join().node_rank() != node ||
        message.generation() != generation_.number) {
        out_.refused.push_back(node);
        return take();
    }
    supporters_[node] = message;
    perform(election_.support(node, message.join().support()), now);
    return take();
}

void Node::on_supporter_lost(uint32_t node) {
    supporters_.erase(node);
    election_.lose(node);
}

void Node::become_broker() {
    config_.broker = true;
    config_.broker_host = config_.host;
    config_.master_addr = broker_.own_address;
    config_.generation = generation_.number;
    out_.disconnect = true;
    out_.elected = Succession{election_.roll(), lost_broker_->why, lost_broker_->lost_at, lost_broker_->ends};
    for (auto& [node, message] : supporters_) out_.supporters.emplace_back(node, std::move(message));
    supporters_.clear();
}

// The step's first broker, or one that was elected, perhaps this node's own.
void Node::found_broker(Time now) {
    if (election_.is_under_way()) config_.broker_host = printable(election_.target().host(), 64);
    election_.found();
    lost_broker_.reset();
    if (std::exchange(broker_.gone, false) && config_.broker) outbox_.reopen();
    broker_.closed_at.reset();
    broker_.heard = now;
    lease_.reset();
    if (config_.broker) return;
    heartbeats_.watch(kBroker, now);
    if (config_.settings.outlives_nodes()) lease_ = lease_until(now);
}

void Node::end_without_broker(const std::string& why, Time now) {
    const std::string reason = std::exchange(lost_broker_, std::nullopt)->reason + "; " + why;
    out_.disconnect = true;
    if (is_reporter()) out_.log.push_back(reason + "; the step ends on " + config_.host);
    abort(abort_message(reason, kBroken), is_reporter(), now);
}

}  // namespace dp
