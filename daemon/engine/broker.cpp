// SPDX-License-Identifier: Apache-2.0
#include "engine/broker.hpp"

#include <algorithm>
#include <map>

#include "common/hostlist.hpp"
#include "common/text.hpp"

namespace dp {

Broker::Broker(BrokerConfig config, Time now)
    : config_(std::move(config)),
      members_(config_.world_size, config_.nodes, config_.hosts),
      meetings_(config_.world_size,
                [this](std::span<const uint32_t> ranks) { return members_.describe(ranks); }),
      vouching_(config_.owner),
      started_(now) {}

BrokerActions Broker::take() {
    return std::exchange(out_, {});
}

void Broker::send(uint32_t node, wire::ToNode message) {
    out_.sends.emplace_back(node, std::move(message));
}

void Broker::to_all(const wire::ToNode& message) {
    for (uint32_t node = 0; node < members_.nodes().size(); ++node) {
        const auto& state = members_.nodes()[node];
        if (state.joined && !state.left && !state.lost) send(node, message);
    }
}

// One message a node, however many of its ranks the answer is for.
void Broker::deliver(const std::vector<Answer>& answers) {
    for (const auto& a : answers) {
        std::map<uint32_t, wire::ToNode> by_node;
        for (const Caller& caller : a.callers) {
            const auto& node = members_.ranks()[caller.rank].node;
            if (!node) continue;
            auto* target = by_node[*node].mutable_reply()->add_targets();
            target->set_rank(caller.rank);
            target->set_id(caller.id);
        }
        for (auto& [node, message] : by_node) {
            *message.mutable_reply()->mutable_reply() = a.reply;
            send(node, std::move(message));
        }
    }
}

std::string Broker::where(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " on " + members_.host_of(rank);
}

void Broker::abort(const std::string& reason, Patience patience) {
    if (aborted_) return;  // the first cause wins; what follows from it is no cause
    aborted_ = true;
    abort_reason_ = reason;
    suspicions_.clear();
    // Before the plan is out, the waiting tasks of this node print the reason themselves.
    if (plan_sent_to_own_) out_.log.push_back(reason + "; ending the step");
    wire::ToNode message;
    message.mutable_abort()->set_reason(reason);
    message.mutable_abort()->set_term_after_ms(static_cast<uint32_t>(patience.term.count()));
    message.mutable_abort()->set_kill_after_ms(static_cast<uint32_t>(patience.kill.count()));
    to_all(message);
}

void Broker::died(uint32_t rank, int wait_status, Time now) {
    const std::string reason = where(rank) + " " + describe_status(wait_status);
    const Patience patience = patience_after(wait_status);
    if (patience != kTold) {
        dead(reason, patience, {rank});
    } else {
        suspicions_.push_back({reason, kTold, now + kPoliteDelay, {rank}});
    }
}

// The end of the step, or with --dp-on-failure=report a line and the end of what waits for these ranks.
void Broker::dead(const std::string& reason, Patience patience, const std::vector<uint32_t>& ranks) {
    if (!config_.report_failures) return abort(reason, patience);
    if (aborted_) return;
    out_.log.push_back(reason + "; the others go on (--dp-on-failure=report)");
    for (uint32_t rank : ranks) {
        ended_.insert(rank);
        deliver(meetings_.give_up(rank));
    }
}

void Broker::own_node_left(Time now) {
    // Its tasks ended before the world was complete: cancelled. Nobody else can start now.
    if (!plan_sent_to_own_)
        abort("the ranks on " + members_.nodes()[config_.own_node].host +
                  " ended before the world was complete",
              kBroken);
    leave_at_ = aborted_ ? now : now + kBrokerLinger;
}

BrokerActions Broker::on_message(uint32_t node, const wire::FromNode& message, Time now) {
    switch (message.kind_case()) {
        case wire::FromNode::kJoin:
            join(node, message.join());
            break;
        case wire::FromNode::kRank:
            rank_event(node, message.rank(), now);
            break;
        case wire::FromNode::kRequest:
            request(node, message.request(), now);
            break;
        case wire::FromNode::kFault:
            dead(printable(message.fault().reason(), 300), kBroken, members_.nodes()[node].ranks);
            break;
        case wire::FromNode::kLeave:
            members_.leave(node);
            forget_node(node);
            if (node == config_.own_node) own_node_left(now);
            if (members_.all_left()) finished_ = true;
            break;
        case wire::FromNode::kOwner: {
            SocketOwner owner;
            if (message.owner().has_uid())
                owner.uid = message.owner().uid();
            else
                owner.problem = printable(message.owner().problem());
            if (auto verdict = vouching_.answer(node, message.owner().connection(), owner))
                out_.verdicts.push_back(*verdict);
            break;
        }
        case wire::FromNode::KIND_NOT_SET:
            break;
    }
    return take();
}

void Broker::join(uint32_t node, const wire::Join& join) {
    if (join.node_rank() != node) {
        out_.refused.push_back(node);
        return;
    }
    if (auto why = members_.join(join)) {
        out_.log.push_back("refused a relay from " + printable(join.host(), 64) + ": " + *why);
        out_.refused.push_back(node);
        return;
    }
    vouching_.add_node(node, {join.addresses().begin(), join.addresses().end()}, node == config_.own_node);
    if (aborted_) {
        wire::ToNode message;
        message.mutable_abort()->set_reason(abort_reason_);
        message.mutable_abort()->set_kill_after_ms(static_cast<uint32_t>(kBroken.kill.count()));
        send(node, std::move(message));
        return;
    }
    wire::ToNode plan;
    plan.mutable_plan()->set_master_addr(config_.master_addr);
    plan.mutable_plan()->set_master_port(config_.master_port);
    plan.mutable_plan()->set_coordinator_port(config_.coordinator_port);
    // The other nodes go ahead. Rank 0's waits until all are there: its ranks could end before a slow node
    // has come, and the broker with them. A world is complete no sooner for it.
    if (node != config_.own_node) send(node, plan);
    if (members_.all_joined()) {
        plan_sent_to_own_ = true;
        if (config_.want_table) plan.mutable_plan()->set_table(members_.table());
        send(config_.own_node, std::move(plan));
    }
}

void Broker::rank_event(uint32_t node, const wire::RankEvent& event, Time now) {
    if (event.rank() >= config_.world_size || members_.ranks()[event.rank()].node != node) return;
    const Membership::Rank before = members_.ranks()[event.rank()];
    members_.note(event);
    switch (event.event_case()) {
        case wire::RankEvent::kHello:
            vanished_.erase(event.rank());
            if (!first_hello_) {
                first_hello_ = now;
                next_notice_ = now + kFirstLateNotice;
            }
            break;
        case wire::RankEvent::kVanished:
            store_.drop(event.rank());
            vanished_[event.rank()] = now + kExitFollows;
            break;
        case wire::RankEvent::kGoodbye:
            store_.drop(event.rank());
            break;
        case wire::RankEvent::kExited: {
            store_.drop(event.rank());
            vanished_.erase(event.rank());
            ended_.insert(event.rank());
            const bool silent = before.said_hello && !before.said_goodbye;
            if (event.exited() != 0 && !event.cancelled()) {
                died(event.rank(), event.exited(), now);
            } else if (event.exited() == 0 && silent && !aborted_) {
                out_.log.push_back(
                    where(event.rank()) +
                    " exited with code 0 without goodbye (its program ended in the middle, or lacks "
                    "dp_close)");
            }
            deliver(meetings_.give_up(event.rank()));
            break;
        }
        default:
            break;
    }
}

void Broker::request(uint32_t node, const wire::NodeRequest& request, Time now) {
    const uint32_t rank = request.rank();
    if (rank >= config_.world_size || members_.ranks()[rank].node != node) return;
    const Caller caller{rank, request.request().id()};
    if (aborted_) {
        deliver({answer(caller, wire::ABORTED, abort_reason_)});
        return;
    }
    if (!request.request().has_arrive()) {
        deliver(store_.handle(caller, request.request(), now));
        return;
    }
    const auto& arrive = request.request().arrive();
    deliver(meetings_.arrive(caller, arrive, now, clamped(request.request().timeout_ms())));
    // A member that has ended will never come.
    for (uint32_t ended : ended_) deliver(meetings_.give_up(ended));
}

BrokerActions Broker::on_lost(uint32_t node, const std::string& why, Time now) {
    const auto& state = members_.nodes()[node];
    if (finished_ || !state.joined || state.left || state.lost) return take();
    members_.lose(node);
    forget_node(node);
    suspicions_.push_back({"node " + state.host + " (" + name_ranks(state.ranks) + ") is lost: " + why,
                           kBroken, now + kLostDelay, state.ranks});
    for (uint32_t rank : state.ranks) store_.drop(rank);
    if (members_.all_left()) finished_ = true;
    return take();
}

void Broker::forget_node(uint32_t node) {
    for (auto& verdict : vouching_.remove_node(node)) out_.verdicts.push_back(std::move(verdict));
}

BrokerActions Broker::on_connection(uint64_t connection, const SocketEnds& ends, Time now) {
    Vouching::Inquiry inquiry = vouching_.ask(connection, ends, now);
    out_.verdicts = std::move(inquiry.verdicts);
    for (uint32_t node : inquiry.nodes) {
        wire::ToNode message;
        message.mutable_who_owns()->set_connection(connection);
        message.mutable_who_owns()->set_client_address(ends.client);
        message.mutable_who_owns()->set_client_port(ends.client_port);
        message.mutable_who_owns()->set_server_address(ends.server);
        message.mutable_who_owns()->set_server_port(ends.server_port);
        send(node, std::move(message));
    }
    return take();
}

// The two deadlines of --dp-timeout: every node connects after the start, every rank says hello after the
// first one.
void Broker::check_arrivals(Time now) {
    if (aborted_) return;
    const std::string within =
        " within " + std::to_string(config_.timeout.count() / 1000) + " s (--dp-timeout)";
    if (!members_.all_joined() && now >= started_ + config_.timeout) {
        std::vector<uint32_t> absent;
        for (uint32_t rank = 0; rank < config_.world_size; ++rank)
            if (!members_.ranks()[rank].node) absent.push_back(rank);
        abort(std::to_string(config_.world_size - absent.size()) + " of " +
                  std::to_string(config_.world_size) + " ranks are there" + within +
                  "; missing: " + members_.describe(absent),
              kBroken);
        return;
    }
    if (!first_hello_) return;
    auto late = members_.without_hello();
    if (late.empty()) return;
    const std::string count =
        std::to_string(members_.hellos()) + " of " + std::to_string(config_.world_size) + " ranks said hello";
    if (now >= *first_hello_ + config_.timeout) {
        abort(count + within + "; missing: " + members_.describe(late), kBroken);
    } else if (now >= *next_notice_) {
        out_.log.push_back(count + " after " + std::to_string((now - *first_hello_).count() / 1000) +
                           " s; waiting for " + members_.describe(late));
        next_notice_ = now + kLateNoticeEvery;
    }
}

BrokerActions Broker::tick(Time now) {
    deliver(store_.expire(now));
    deliver(meetings_.expire(now));
    check_arrivals(now);
    for (auto& verdict : vouching_.expire(now)) out_.verdicts.push_back(std::move(verdict));
    for (auto it = vanished_.begin(); it != vanished_.end();) {
        auto current = it++;
        if (now < current->second) continue;
        const uint32_t rank = current->first;
        vanished_.erase(current);
        if (!aborted_)
            out_.log.push_back(where(rank) + " closed its connection without goodbye, and its task goes on");
        deliver(meetings_.give_up(rank));
    }
    while (!suspicions_.empty() && now >= suspicions_.front().until) {
        const Suspicion cause = std::move(suspicions_.front());
        suspicions_.pop_front();
        if (!members_.all_exited()) dead(cause.reason, cause.patience, cause.ranks);
    }
    if (leave_at_ && now >= *leave_at_ && !finished_) {
        finished_ = true;
        const std::string why = "the rendezvous daemon on " + members_.nodes()[config_.own_node].host +
                                " has left (rank 0's node has finished)";
        deliver(store_.end(wire::LOST, why));
        deliver(meetings_.end(wire::LOST, why));
        wire::ToNode message;
        message.mutable_farewell();
        to_all(message);
    }
    return take();
}

std::optional<Time> Broker::next_deadline() const {
    std::optional<Time> next = earlier(store_.next_deadline(), meetings_.next_deadline());
    next = earlier(next, leave_at_);
    next = earlier(next, vouching_.next_deadline());
    if (!suspicions_.empty()) next = earlier(next, suspicions_.front().until);
    for (const auto& [rank, until] : vanished_) next = earlier(next, until);
    if (aborted_) return next;
    if (!members_.all_joined()) next = earlier(next, started_ + config_.timeout);
    if (first_hello_ && !members_.without_hello().empty())
        next = earlier(earlier(next, *first_hello_ + config_.timeout), next_notice_);
    return next;
}

}  // namespace dp
