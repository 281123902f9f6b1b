// SPDX-License-Identifier: Apache-2.0
//
// The Node without its broker (--dp-spares, --dp-min-nodes): it ends its ranks, takes part in the election of another
// broker, and follows that or is it (node.hpp; election.hpp).
#include <csignal>

#include "base/text.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {

// Its ranks may begin elsewhere.
void Node::orphan(Orphan loss, Time now) {
    lease_.reset();
    out_.signal_ranks = SIGKILL;
    out_.clear_ranks = true;  // also what they fork meanwhile
    generation_.is_ending = true;
    wire::Abort why = abort_message(loss.reason, {Time(0), Time(0)});
    termination_.begin(why, now);
    tell_ranks(wrap(&wire::ToRank::mutable_abort, std::move(why)));
    orphan_ = std::move(loss);
}

// They were told to end and may take their time, but not longer than those who have not heard of it wait for them.
void Node::kill_without_broker() {
    if (!config_.settings.outlives_nodes() || !published_ || !is_aborted()) return;
    lease_.reset();
    out_.signal_ranks = SIGKILL;
    out_.clear_ranks = true;
}

void Node::elect_if_ready(Time now) {
    if (orphan_->is_held_back || !orphan_->is_cleared || election_.is_under_way() || leaving_.gave_up) return;
    follow(election_.begin(orphan_->ends, now), now);
}

void Node::follow(const Election::Step& step, Time now) {
    if (step.seek || step.stay) {
        out_.seek = step.seek;
        out_.stay = step.stay;
        outbox_ = Outbox();
    }
    for (const uint32_t node : step.refused) {
        supporters_.erase(node);
        out_.refused.push_back(node);
    }
    if (step.elected) become_broker();
    if (step.over) end_without_broker(*step.over, now);
}

NodeActions Node::on_supporter(uint32_t node, const wire::FromNode& message, Time now) {
    if (!message.has_join())
        return take();  // the heartbeat of one that takes this node for its broker already
    if (!message.join().has_candidature() || message.join().node_rank() != node ||
        message.generation() != generation_.number) {
        out_.refused.push_back(node);
        return take();
    }
    supporters_[node] = message;
    follow(election_.support(node, message.join().candidature()), now);
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
    out_.stay = true;
    out_.elected = Succession{election_.roll(), orphan_->why, orphan_->lost_at, orphan_->ends};
    for (auto& [node, message] : supporters_) out_.supporters.emplace_back(node, std::move(message));
    supporters_.clear();
}

// The step's first broker, or one that was elected, perhaps this node's own.
void Node::found_broker(Time now) {
    if (election_.is_under_way()) config_.broker_host = printable(election_.target().host(), 64);
    election_.found();
    orphan_.reset();
    if (std::exchange(broker_.gone, false) && config_.broker) outbox_ = Outbox();
    broker_.closed_at.reset();
    broker_.heard = now;
    lease_.reset();
    if (config_.broker) return;
    heartbeats_.watch(kBroker, now);
    if (config_.settings.outlives_nodes()) lease_ = lease_until(now);
}

void Node::end_without_broker(const std::string& why, Time now) {
    const std::string reason = std::exchange(orphan_, std::nullopt)->reason + "; " + why;
    out_.stay = true;
    if (is_reporter()) out_.log.push_back(reason + "; ending the ranks on " + config_.host);
    abort(abort_message(reason, kBroken), is_reporter(), now);
}

}  // namespace dp
