// SPDX-License-Identifier: Apache-2.0
#include "engine/node.hpp"

#include <algorithm>
#include <csignal>

#include "common/text.hpp"
#include "framing.hpp"

namespace dp {

Node::Node(NodeConfig config, Time now)
    : config_(std::move(config)), started_(now), exited_(config_.ranks.size(), false) {}

NodeActions Node::take() {
    return std::exchange(out_, {});
}

void Node::tell_broker(wire::FromNode message) {
    if (broker_gone_) return;
    (joined_ ? out_.to_broker : queued_).push_back(std::move(message));
}

void Node::rank_event(uint32_t rank, auto&& fill) {
    wire::FromNode message;
    message.mutable_rank()->set_rank(rank);
    fill(*message.mutable_rank());
    tell_broker(std::move(message));
}

void Node::reply(ConnectionId connection, uint64_t id, wire::Status status, const std::string& why) {
    wire::ToRank message;
    message.mutable_reply()->set_id(id);
    message.mutable_reply()->set_status(status);
    message.mutable_reply()->set_error(why);
    out_.to_ranks.emplace_back(connection, std::move(message));
}

// ---- the broker ----

NodeActions Node::on_joined(const std::string& address) {
    joined_ = true;
    address_ = address;
    wire::FromNode message;
    message.mutable_join()->set_node_rank(config_.node_rank);
    message.mutable_join()->set_host(config_.host);
    message.mutable_join()->set_address(address);
    for (uint32_t rank : config_.ranks) message.mutable_join()->add_ranks(rank);
    for (const auto& one : config_.addresses) message.mutable_join()->add_addresses(one);
    out_.to_broker.push_back(std::move(message));
    std::move(queued_.begin(), queued_.end(), std::back_inserter(out_.to_broker));
    queued_.clear();
    return take();
}

NodeActions Node::on_broker(const wire::ToNode& message, Time now) {
    switch (message.kind_case()) {
        case wire::ToNode::kPlan:
            if (!published_) {
                published_ = true;
                out_.plan = NodePlan{message.plan().master_addr(),
                                     static_cast<uint16_t>(message.plan().master_port()),
                                     static_cast<uint16_t>(message.plan().coordinator_port()), address_,
                                     message.plan().table()};
            }
            break;
        case wire::ToNode::kReply:
            for (const auto& target : message.reply().targets()) {
                auto found = connection_.find(target.rank());
                if (found == connection_.end()) continue;
                wire::ToRank answer;
                *answer.mutable_reply() = message.reply().reply();
                answer.mutable_reply()->set_id(target.id());
                out_.to_ranks.emplace_back(found->second, std::move(answer));
            }
            break;
        case wire::ToNode::kAbort:
            abort(printable(message.abort().reason(), 600),
                  {Time(message.abort().term_after_ms()), Time(message.abort().kill_after_ms())}, now);
            break;
        case wire::ToNode::kWhoOwns: {
            const auto& asked = message.who_owns();
            out_.lookups.push_back({asked.connection(),
                                    {asked.client_address(), static_cast<uint16_t>(asked.client_port()),
                                     asked.server_address(), static_cast<uint16_t>(asked.server_port())}});
            break;
        }
        case wire::ToNode::kFarewell:
            broker_gone_ = true;
            if (told_) finished_ = true;
            break;
        case wire::ToNode::KIND_NOT_SET:
            break;
    }
    return take();
}

void Node::on_other_version(uint32_t protocol) {
    other_version_ = "what answers there speaks protocol " + std::to_string(protocol) + " and this node " +
                     std::to_string(kProtocol) + "; install the same version of slurm-dp on both";
}

NodeActions Node::on_owner(uint64_t connection, const SocketOwner& owner) {
    wire::FromNode message;
    message.mutable_owner()->set_connection(connection);
    if (owner.uid)
        message.mutable_owner()->set_uid(*owner.uid);
    else
        message.mutable_owner()->set_problem(owner.problem);
    tell_broker(std::move(message));
    return take();
}

NodeActions Node::on_broker_lost(const std::string& why, Time now) {
    if (broker_gone_) return take();
    broker_gone_ = true;
    if (ending_) {
        if (told_) finished_ = true;
        return take();
    }
    if (!abort_reason_.empty()) return take();
    const std::string reason = joined_ ? "node " + config_.host + " lost the rendezvous daemon on " +
                                             config_.broker_host + ": " + why
                                       : why;
    if (config_.report_failures && published_) {
        out_.log.push_back(reason + "; its ranks go on without it (--dp-on-failure=report)");
        return take();
    }
    // Without a plan the waiting tasks of this node print the reason themselves.
    if (published_) out_.log.push_back(reason + "; ending the ranks of this node");
    abort(reason, kBroken, now);
    return take();
}

void Node::abort(const std::string& reason, Patience patience, Time now) {
    if (!abort_reason_.empty()) return;
    abort_reason_ = reason;
    if (!published_) {
        published_ = true;
        out_.no_plan = reason;
    }
    wire::ToRank message;
    message.mutable_abort()->set_reason(reason);
    for (const auto& [connection, rank] : rank_of_) out_.to_ranks.emplace_back(connection, message);
    term_at_ = now + patience.term;
    kill_at_ = now + patience.kill;
}

// ---- the ranks ----

void Node::hello(ConnectionId connection, const wire::Hello& hello) {
    auto refuse = [&](const std::string& why) {
        reply(connection, 0, wire::INVALID, why);
        out_.close.push_back(connection);
    };
    if (hello.protocol() != kProtocol) {
        refuse("libdp speaks protocol " + std::to_string(hello.protocol()) + " and the daemon " +
               std::to_string(kProtocol) + "; use libdp and slurm-dp of the same version");
        return;
    }
    auto mine = std::find(config_.ranks.begin(), config_.ranks.end(), hello.rank());
    if (mine == config_.ranks.end()) {
        refuse("rank " + std::to_string(hello.rank()) + " is not on " + config_.host);
        return;
    }
    if (connection_.contains(hello.rank())) {
        refuse("another process is already rank " + std::to_string(hello.rank()) +
               "; only one process of a task may open the world at a time");
        return;
    }
    rank_of_[connection] = hello.rank();
    connection_[hello.rank()] = connection;
    wire::ToRank welcome;
    welcome.mutable_welcome();
    out_.to_ranks.emplace_back(connection, std::move(welcome));
    if (!abort_reason_.empty()) {
        wire::ToRank message;
        message.mutable_abort()->set_reason(abort_reason_);
        out_.to_ranks.emplace_back(connection, std::move(message));
    }
    rank_event(hello.rank(), [&](wire::RankEvent& e) { e.set_hello(hello.pid()); });
}

NodeActions Node::on_rank(ConnectionId connection, const wire::FromRank& message) {
    auto known = rank_of_.find(connection);
    if (message.has_hello() && known == rank_of_.end()) {
        hello(connection, message.hello());
    } else if (known == rank_of_.end()) {
        out_.close.push_back(connection);  // no hello first: not libdp
    } else if (message.has_request()) {
        if (broker_gone_) {
            reply(
                connection, message.request().id(), wire::LOST,
                "the rendezvous daemon on " + config_.broker_host + " is gone (rank 0's node has finished)");
        } else {
            wire::FromNode up;
            up.mutable_request()->set_rank(known->second);
            *up.mutable_request()->mutable_request() = message.request();
            tell_broker(std::move(up));
        }
    } else if (message.has_goodbye()) {
        rank_event(known->second, [](wire::RankEvent& e) { e.set_goodbye(true); });
        forget(connection);
        out_.close.push_back(connection);
    }
    return take();
}

NodeActions Node::on_rank_closed(ConnectionId connection) {
    auto known = rank_of_.find(connection);
    if (known != rank_of_.end()) {
        rank_event(known->second, [](wire::RankEvent& e) { e.set_vanished(true); });
        forget(connection);
    }
    return take();
}

void Node::forget(ConnectionId connection) {
    const uint32_t rank = rank_of_[connection];
    connection_.erase(rank);
    rank_of_.erase(connection);
    report_exit(rank);
}

// ---- the launcher ----

void Node::report_exit(uint32_t rank) {
    auto found = exits_.find(rank);
    if (found == exits_.end()) return;
    const Exit exit = found->second;
    exits_.erase(found);
    rank_event(rank, [&](wire::RankEvent& e) {
        e.set_exited(exit.status);
        e.set_cancelled(exit.cancelled);
    });
    leave_if_all_told();
}

void Node::leave_if_all_told() {
    if (!ending_ || told_ || !exits_.empty()) return;
    told_ = true;
    // Without a broker to tell there is nothing to wait for.
    if (broker_gone_ || !joined_) {
        finished_ = true;
        return;
    }
    wire::FromNode message;
    message.mutable_leave();
    tell_broker(std::move(message));
}

NodeActions Node::on_control(const ControlEvent& event, Time now) {
    if (event.kind == ControlEvent::Kind::end) {
        ending_ = true;
        leave_if_all_told();
        return take();
    }
    if (event.local_rank >= config_.ranks.size()) return take();
    const uint32_t rank = config_.ranks[event.local_rank];
    if (event.kind == ControlEvent::Kind::task) {
        rank_event(rank, [&](wire::RankEvent& e) { e.set_started(event.value); });
    } else if (!exited_[event.local_rank]) {
        exited_[event.local_rank] = true;
        exits_[rank] = {event.value, cancelled_ || !abort_reason_.empty(), now + kLastWords};
        if (!connection_.contains(rank)) report_exit(rank);
    }
    return take();
}

NodeActions Node::on_launcher_lost() {
    if (ending_) return take();
    const std::string reason = config_.launcher + " on " + config_.host + " is gone; its " +
                               plural(config_.ranks.size(), "rank") +
                               (config_.ranks.size() == 1 ? " is" : " are") + " ended";
    out_.signal_ranks = SIGKILL;
    wire::FromNode fault;
    fault.mutable_fault()->set_reason(reason);
    tell_broker(std::move(fault));
    ending_ = true;
    exits_.clear();
    leave_if_all_told();
    return take();
}

// ---- time ----

NodeActions Node::tick(Time now) {
    if (!joined_ && !broker_gone_ && now >= started_ + config_.timeout) {
        auto lost = on_broker_lost(
            "this node could not reach the rendezvous daemon on " + config_.broker_host +
                (config_.broker_addresses.empty() ? "" : " (" + config_.broker_addresses + ")") + " within " +
                std::to_string(config_.timeout.count() / 1000) + " s (--dp-timeout): " +
                (other_version_.empty() ? "is its node up, and may this node connect to it?"
                                        : other_version_),
            now);
        out_ = std::move(lost);
    }
    std::vector<uint32_t> overdue;
    for (const auto& [rank, exit] : exits_)
        if (now >= exit.deadline) overdue.push_back(rank);
    for (uint32_t rank : overdue) report_exit(rank);
    if (term_at_ && now >= *term_at_) {
        term_at_.reset();
        out_.signal_ranks = SIGTERM;
    }
    if (kill_at_ && now >= *kill_at_) {
        kill_at_.reset();
        out_.signal_ranks = SIGKILL;
    }
    return take();
}

std::optional<Time> Node::next_deadline() const {
    std::optional<Time> next = earlier(term_at_, kill_at_);
    for (const auto& [rank, exit] : exits_) next = earlier(next, exit.deadline);
    if (!joined_ && !broker_gone_) next = earlier(next, started_ + config_.timeout);
    return next;
}

}  // namespace dp
