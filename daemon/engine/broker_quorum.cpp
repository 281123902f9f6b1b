// SPDX-License-Identifier: Apache-2.0
//
// The broker of a step that outlives its nodes (--dp-spares, --dp-min-nodes): whether it may go on, and how an elected
// one takes over. See broker.hpp; quorum.hpp has the rules.
#include <algorithm>

#include "base/text.hpp"
#include "common/hostlist.hpp"
#include "engine/broker.hpp"
#include "engine/election.hpp"
#include "framing.hpp"

namespace dp {

wire::Roll Broker::next_roll(Time now) {
    std::vector<uint32_t> nodes = members_.here();
    wire::Roll roll;
    roll.set_number(++roll_);
    roll.set_broker(config_.node_rank);
    roll.set_nodes(compress_ranks(nodes));
    roll.set_restarts_used(restart_policy_.used());
    size_t most = 1;
    for (const uint32_t node : nodes) most = std::max(most, members_.nodes()[node].ranks.size());
    roll.set_ranks_per_node(static_cast<uint32_t>(most));
    members_.name_successors(roll, config_.node_rank, kSuccessors);
    std::erase(nodes, config_.node_rank);
    quorum_->begin(nodes, now);
    roll.set_settled_by(static_cast<uint32_t>(quorum_->settled_by()));
    return roll;
}

void Broker::alive(uint32_t node, const wire::Alive& said, Time now) {
    members_.set_clock(node, said.clock_ms(), now);
    if (!quorum_) return;
    quorum_->confirm(node, clamped(said.heard_ms()));
    note_abort_known(now);
    if (said.roll() == roll_ && !succession_ && quorum_->note_known_by(node)) send_heartbeats(now);
    check_succession(now);
}

// To its own node, too, where that must hear that the roll is settled.
void Broker::send_heartbeats(Time now) {
    const Time held = quorum_ ? quorum_->last_confirmed(now) : now;
    for (const uint32_t node : members_.here())
        if (node != config_.node_rank || quorum_)
            send(node, wrap(&wire::ToNode::mutable_alive, heartbeat(node, held, now)));
}

// `held`: as in Quorum::last_confirmed.
wire::Alive Broker::heartbeat(uint32_t node, Time held, Time now) const {
    wire::Alive alive;
    if (!quorum_) return alive;
    alive.set_clock_ms(now.count());
    alive.set_answer(succession_.has_value());
    if (quorum_->is_settled()) alive.set_roll(roll_);
    // A node's ranks must not outlive the broker's right to act: it passes on no more trust than it has itself. (In a
    // succession they have ended.)
    const Time doubt = succession_ ? Time(0) : now - std::max(held, now - dead_after(config_)) - kUsualDoubt;
    alive.set_heard_ms(std::max(Time(1), members_.nodes()[node].clock - std::max(Time(0), doubt)).count());
    return alive;
}

// After `delay`, in which the step's own end may show.
void Broker::check_quorum(Time delay, Time now) {
    if (!quorum_ || abort_is_known_ || has_lost_quorum_ || !plan_sent_ || succession_ || generation_->done)
        return;
    if (now - std::max(quorum_->last_confirmed(now), Time(0)) < fenced_after(config_)) return;
    has_lost_quorum_ = true;
    quorum_lost_at_ = now + delay;
}

void Broker::end_without_quorum(Time now) {
    if (!quorum_lost_at_ || now < *quorum_lost_at_) return;
    quorum_lost_at_.reset();
    if (abort_) {  // its node's ranks had more time, but others may go on without them
        wire::Abort at_once = abort_message(abort_reason(), {Time(0), Time(0)});
        return send(config_.node_rank, wrap(&wire::ToNode::mutable_abort, std::move(at_once)));
    }
    const size_t left = quorum_->confirmed_since(now - fenced_after(config_) + Time(1));
    abort({"only " + std::to_string(left) + " of " + plural(quorum_->nodes(), "node") +
               " can be reached, too few to go on",
           {Time(0), Time(0)}});
}

// What a node confirms now was sent after the abort.
void Broker::note_abort_known(Time now) {
    if (!quorum_ || !abort_ || abort_is_known_) return;
    if (!aborted_at_) aborted_at_ = now;
    abort_is_known_ = quorum_->confirmed_since(*aborted_at_ + Time(1)) >= quorum_->needed();
}

// Whether the others can elect another broker, once this one has closed their connections, and that can go on.
bool Broker::can_resign(Time now) const {
    if (!quorum_ || !plan_sent_ || succession_ || abort_ || restart_policy_.left() == 0 ||
        quorum_->confirmed_since(now - kSilent) <= Quorum::majority(quorum_->nodes()))
        return false;
    auto nodes = members_.world();
    nodes[config_.node_rank].is_here = false;
    wire::Roll roll;
    members_.name_successors(roll, config_.node_rank, 1);
    return roll.successors_size() > 0 &&
           next_world(nodes, config_.settings, roll.successors(0).node_rank()).has_value();
}

// Without a succession any node may join that supports nobody. An elected broker takes only nodes that lost the same
// broker and have the same roll.
bool Broker::is_awaited(uint32_t node, const wire::Join& join) const {
    if (node == config_.node_rank || !join.has_support()) return !succession_ || node == config_.node_rank;
    const wire::Support& said = join.support();
    return succession_ && std::ranges::count(nodes_of(succession_->from().roll, config_.nodes), node) > 0 &&
           said.broker() == succession_->from().roll.broker() &&
           said.roll() == succession_->from().roll.number();
}

// Takes over once most nodes confirm that this one is their broker; ends the step if they do not in time.
void Broker::check_succession(Time now) {
    if (!succession_ || abort_ || out_.renew_ports) return;
    const auto begins = succession_->begins_at();
    if (begins && now >= *begins && members_.nodes()[config_.node_rank].joined) {
        if (quorum_->confirmed_since(now - kSilent) >= quorum_->needed()) return take_over(now);
        succession_->note_due();
    }
    if (now < succession_->fails_at()) return;
    has_lost_quorum_ = true;
    abort({"the rendezvous daemon on " + members_.nodes()[succession_->from().roll.broker()].host +
           " is lost, and its successor on " + config_.host + " reaches only " +
           std::to_string(quorum_->confirmed_since(now - kSilent)) + " of " +
           plural(quorum_->nodes(), "node") + ", too few to go on"});
}

// The next generation begins without the nodes that have not come.
void Broker::take_over(Time now) {
    const Succession& from = succession_->from();
    const std::vector<uint32_t> lost = members_.presume_lost(from.roll);
    totals_.set_lost_nodes(static_cast<uint32_t>(lost.size()));
    Death death{members_.name_nodes(lost) +
                (lost.size() == 1 ? " is lost: " + from.why : " are lost (the broker: " + from.why + ")")};
    death.of_node = true;
    if (const auto why_not = restart_policy_.why_not(death, false, now)) {
        death.reason += "; " + *why_not;
        return abort(death);
    }
    restart_.emplace(death.reason, std::set<uint32_t>(), Time(0), from.lost_at);
    restart_->add_survivors(succession_->survivors());
    out_.renew_ports = true;
}

}  // namespace dp
