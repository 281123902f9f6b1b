// SPDX-License-Identifier: Apache-2.0
//
// The messages of nodes, who is awaited, and time; where something goes wrong: broker_deaths.cpp; what dpctl
// asks: broker_questions.cpp. See broker.hpp.
#include "engine/broker.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"

namespace dp {

Broker::Broker(BrokerConfig config, Time now)
    : config_(std::move(config)),
      members_(config_.world_size, config_.nodes, config_.hosts),
      meetings_(
          config_.world_size, [this](std::span<const uint32_t> ranks) { return members_.describe(ranks); },
          [this](std::span<const uint32_t> ranks) { return members_.hosts_of(ranks); }),
      vouching_(config_.owner),
      heartbeats_(config_.dead_after),
      started_(now),
      next_notice_(now + kFirstLateNotice) {}

BrokerActions Broker::take() {
    return std::exchange(out_, {});
}

void Broker::send(uint32_t node, wire::ToNode message) {
    out_.sends.emplace_back(node, std::move(message));
}

void Broker::to_all(wire::ToNode message) {
    const auto common = std::make_shared<const wire::ToNode>(std::move(message));
    for (uint32_t node = 0; node < members_.nodes().size(); ++node) {
        const auto& state = members_.nodes()[node];
        if (state.joined && !state.left && !state.lost)
            out_.sends.emplace_back(node, Parts<wire::ToNode>({}, common));
    }
}

// One message a node, however many of its ranks the answer is for, and the answer itself once for all.
void Broker::deliver(const std::vector<Answer>& answers) {
    for (const auto& a : answers) {
        std::map<uint32_t, wire::ToNode> by_node;
        for (const Caller& caller : a.callers) {
            const auto& node = members_.ranks()[caller.rank].node;
            if (!node || members_.nodes()[*node].lost) continue;
            auto* target = by_node[*node].mutable_reply()->add_targets();
            target->set_rank(caller.rank);
            target->set_id(caller.id);
        }
        const auto common = std::make_shared<wire::ToNode>();
        *common->mutable_reply()->mutable_reply() = a.reply;
        for (auto& [node, targets] : by_node)
            out_.sends.emplace_back(node, Parts<wire::ToNode>(std::move(targets), common));
    }
}

std::string Broker::where(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " on " + members_.host_of(rank);
}

void Broker::own_node_left(Time now) {
    // Its tasks ended before the world was complete: cancelled. Nobody else can start now.
    if (!plan_sent_)
        abort("the ranks on " + members_.nodes()[config_.own_node].host +
                  " ended before the world was complete",
              kBroken);
    leave_at_ = now + kBrokerLinger;
}

// A step that ends takes no more nodes.
void Broker::finish_if_nobody_is_here() {
    if (members_.all_left() || (aborted_ && leave_at_ && members_.nobody_is_here())) finished_ = true;
}

BrokerActions Broker::on_message(uint32_t node, const wire::FromNode& message, Time now) {
    heartbeats_.heard(node, now);
    switch (message.kind_case()) {
        case wire::FromNode::kJoin:
            join(node, message.join(), now);
            break;
        case wire::FromNode::kRank:
            rank_event(node, message.rank(), now);
            break;
        case wire::FromNode::kHellos:
            hellos(node, message.hellos(), now);
            break;
        case wire::FromNode::kArrive:
            arrival(node, message.arrive(), now);
            break;
        case wire::FromNode::kRequest:
            request(node, message.request(), now);
            break;
        case wire::FromNode::kFault:
            node_is_gone_ = true;
            dead(printable(message.fault().reason(), 300), kBroken, members_.nodes()[node].ranks, now);
            break;
        case wire::FromNode::kLeave:
            members_.leave(node);
            forget_node(node);
            if (node == config_.own_node) own_node_left(now);
            finish_if_nobody_is_here();
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
        case wire::FromNode::kStatus: {
            wire::ToNode told;
            told.mutable_status()->set_connection(message.status().connection());
            *told.mutable_status()->mutable_status() = status(message.status().summary(), now);
            send(node, std::move(told));
            break;
        }
        case wire::FromNode::kAskUsage:
            ask_usage({node, message.ask_usage().connection()}, now);
            break;
        case wire::FromNode::kUsage:
            usage_.answer(node, message.usage(), members_);
            break;
        case wire::FromNode::kAlive:
            members_.set_clock(node, message.alive().clock_ms(), now);
            break;
        case wire::FromNode::KIND_NOT_SET:
            break;
    }
    tell_usage(now);
    return take();
}

void Broker::join(uint32_t node, const wire::Join& join, Time now) {
    if (join.node_rank() != node) {
        out_.refused.push_back(node);
        return;
    }
    if (auto why = members_.join(join, now)) {
        out_.log.push_back("refused a relay from " + printable(join.host(), 64) + ": " + *why);
        out_.refused.push_back(node);
        return;
    }
    if (node != config_.own_node) heartbeats_.watch(node, now);
    vouching_.add_node(node, {join.addresses().begin(), join.addresses().end()}, node == config_.own_node);
    if (aborted_) {
        wire::ToNode message;
        *message.mutable_abort() = abort_message({Time(0), kBroken.kill});
        send(node, std::move(message));
        return;
    }
    if (!all_deaths_.reason().empty()) {
        wire::ToNode deaths;
        *deaths.mutable_deaths() = all_deaths_;
        send(node, std::move(deaths));
    }
    if (members_.all_joined()) send_plan();
}

// Not before every node is there: where one cannot take part, no rank of any other starts. A world is
// complete no later for it.
void Broker::send_plan() {
    plan_sent_ = true;
    wire::ToNode plan;
    plan.mutable_plan()->set_master_addr(config_.master_addr);
    plan.mutable_plan()->set_master_port(config_.master_port);
    plan.mutable_plan()->set_coordinator_port(config_.coordinator_port);
    if (config_.want_table) {
        wire::ToNode own = plan;  // a node takes the first
        own.mutable_plan()->set_table(members_.table());
        send(config_.own_node, std::move(own));
    }
    to_all(std::move(plan));
}

bool Broker::is_on(uint32_t rank, uint32_t node) const {
    return rank < config_.world_size && members_.ranks()[rank].node == node;
}

void Broker::hellos(uint32_t node, const wire::Hellos& hellos, Time now) {
    for (const auto& said : hellos.ranks()) {
        if (!is_on(said.rank(), node)) continue;
        members_.hello(said);
        // Its task's next program: what the last one waited for is not this one's.
        if (vanished_.erase(said.rank()) > 0) meetings_.withdraw(said.rank());
        if (!first_hello_) next_notice_ = now + (notice_pause_ = kFirstLateNotice);
        // When it was said, which is before it came here: a call that the rank made then ends no earlier than
        // the step.
        const Time at = members_.ranks()[said.rank()].greeted.value_or(now);
        first_hello_ = std::clamp(std::min(at, first_hello_.value_or(at)), started_, std::max(started_, now));
    }
}

void Broker::arrival(uint32_t node, wire::NodeArrive arrive, Time now) {
    auto* ranks = arrive.mutable_ranks();
    ranks->erase(std::remove_if(ranks->begin(), ranks->end(),
                                [&](const auto& rank) { return !is_on(rank.rank(), node); }),
                 ranks->end());
    if (!aborted_) {
        const std::vector<Answer> answers = meetings_.arrive(arrive, now);
        for (const auto& answer : answers)
            if (!answer.reply.value().empty())
                for (const Caller& caller : answer.callers) members_.note_id(caller.rank, now);
        return deliver(answers);
    }
    for (const auto& rank : *ranks) deliver({answer({rank.rank(), rank.id()}, wire::ABORTED, abort_reason_)});
}

void Broker::rank_event(uint32_t node, const wire::RankEvent& event, Time now) {
    if (!is_on(event.rank(), node)) return;
    const Membership::Rank before = members_.ranks()[event.rank()];
    members_.note(event);
    switch (event.event_case()) {
        case wire::RankEvent::kVanished:
            store_.drop(event.rank());
            if (before.state == Membership::RankState::exited) break;
            vanished_[event.rank()] = now + kExitFollows;
            vanishing_.emplace_back(now + kExitFollows, event.rank());
            break;
        case wire::RankEvent::kStopped:
            (event.stopped() ? stopped_ : continued_).push_back(event.rank());
            if (!say_stopped_at_) say_stopped_at_ = now + kStoppedTogether;
            break;
        case wire::RankEvent::kGoodbye:
            store_.drop(event.rank());
            meetings_.withdraw(event.rank());
            break;
        case wire::RankEvent::kExited: {
            store_.drop(event.rank());
            vanished_.erase(event.rank());
            const bool silent = before.said_hello && !before.said_goodbye;
            if (event.exited() != 0 && !event.cancelled()) {
                // What waits for it is told with the death, which may be held back.
                died(event, now);
                break;
            }
            if (event.exited() == 0 && silent && !aborted_) {
                out_.log.push_back(
                    where(event.rank()) +
                    " exited with code 0 without goodbye (its program ended in the middle, or lacks "
                    "dp_close)");
            }
            deliver(meetings_.ended(event.rank()));
            break;
        }
        default:
            break;
    }
}

void Broker::request(uint32_t node, const wire::NodeRequest& request, Time now) {
    const uint32_t rank = request.rank();
    if (!is_on(rank, node)) return;
    const Caller caller{rank, request.request().id()};
    if (aborted_) {
        deliver({answer(caller, wire::ABORTED, abort_reason_)});
        return;
    }
    deliver(store_.handle(caller, request.request(), now));
}

void Broker::forget_node(uint32_t node) {
    heartbeats_.forget(node);
    usage_.remove(node);
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

BrokerActions Broker::on_torch_arrival(uint32_t node, Time now) {
    torch_arrivals_.arrive(node, now);
    return take();
}

// Every node has connected, and once one rank has said hello, all have.
bool Broker::complete() const {
    return members_.all_joined() && (!first_hello_ || members_.awaited() == 0);
}

// The two deadlines of --dp-timeout: every node connects after the start, every rank says hello after the
// first one.
void Broker::check_arrivals(Time now) {
    if (aborted_ || complete()) return;
    const std::string of = " of " + std::to_string(config_.world_size) + " ranks ";
    if (members_.all_joined()) {
        await(std::to_string(members_.hellos()) + of + "said hello", *first_hello_, members_.without_hello(),
              now);
        return;
    }
    std::vector<uint32_t> absent;
    for (uint32_t rank = 0; rank < config_.world_size; ++rank)
        if (!members_.ranks()[rank].node) absent.push_back(rank);
    await(std::to_string(config_.world_size - absent.size()) + of + "are there", started_, absent, now);
}

void Broker::await(const std::string& there, Time since, std::span<const uint32_t> late, Time now) {
    if (now >= since + config_.timeout) {
        abort(there + " within " + words(config_.timeout) +
                  " (--dp-timeout); missing: " + members_.describe(late),
              kBroken);
    } else if (now >= next_notice_) {
        out_.log.push_back(there + " after " + std::to_string((now - since).count() / 1000) +
                           " s; missing: " + members_.describe(late));
        next_notice_ = now + (notice_pause_ *= 2);
    }
}

BrokerActions Broker::tick(Time now) {
    if (!untold_.reason().empty() && now >= quiet_until_) tell_deaths(now);
    if (say_stopped_at_ && now >= *say_stopped_at_) say_who_stands_still();
    check_arrivals(now);  // first: who waits for a rank that never came hears of that
    if (!aborted_)
        if (std::string late = torch_arrivals_.notice(members_, now); !late.empty())
            out_.log.push_back(std::move(late));
    deliver(store_.expire(now));
    deliver(meetings_.expire(now));
    check_heartbeats(now);
    for (auto& verdict : vouching_.expire(now)) out_.verdicts.push_back(std::move(verdict));
    while (!vanishing_.empty() && now >= vanishing_.front().first) {
        const auto [until, rank] = vanishing_.front();
        vanishing_.pop_front();
        // It came back, or its exit followed.
        if (auto current = vanished_.find(rank); current == vanished_.end() || current->second != until)
            continue;
        vanished_.erase(rank);
        if (!aborted_)
            out_.log.push_back(where(rank) + " closed its connection without goodbye, and its task goes on");
        deliver(meetings_.give_up(rank));
    }
    const auto is_due = [now](const Suspicion& cause) { return now >= cause.until; };
    const auto due = std::find_if_not(suspicions_.begin(), suspicions_.end(), is_due);
    tell_suspicions(static_cast<size_t>(due - suspicions_.begin()), now);
    if (leave_at_ && now >= *leave_at_ && !finished_) {
        finished_ = true;
        // It has not heard that the step ends.
        for (uint32_t node = 0; node < members_.nodes().size(); ++node)
            node_is_gone_ |= heartbeats_.silent_for(node, now) > Time(0);
        const std::string why = "the rendezvous daemon on " + members_.nodes()[config_.own_node].host +
                                " has left (rank 0's node has finished)";
        deliver(store_.end(wire::LOST, why));
        deliver(meetings_.end(wire::LOST, why));
        wire::ToNode message;
        message.mutable_farewell();
        to_all(message);
    }
    tell_usage(now);
    return take();
}

std::optional<Time> Broker::next_deadline() const {
    std::optional<Time> next = earlier(store_.next_deadline(), meetings_.next_deadline());
    if (!finished_) next = earlier(next, leave_at_);
    next = earlier(earlier(next, vouching_.next_deadline()), usage_.next_deadline());
    next = earlier(next, heartbeats_.next_deadline());
    if (!suspicions_.empty()) next = earlier(next, suspicions_.front().until);
    if (!vanishing_.empty()) next = earlier(next, vanishing_.front().first);
    if (!untold_.reason().empty()) next = earlier(next, quiet_until_);
    next = earlier(next, say_stopped_at_);
    if (aborted_) return next;
    next = earlier(next, torch_arrivals_.next_notice());
    if (complete()) return next;
    next = earlier(next, next_notice_);
    return earlier(next, (members_.all_joined() ? *first_hello_ : started_) + config_.timeout);
}

}  // namespace dp
