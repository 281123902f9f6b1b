// SPDX-License-Identifier: Apache-2.0
//
// The Node's dealings with its ranks: who they are, what they ask, and what they are told (node.hpp).
#include <algorithm>

#include "dp/dp.h"
#include "engine/meetings.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {
namespace {

// What a request grows by at most on its way to the broker.
constexpr size_t kWrapping = 64;

}  // namespace

NodeActions Node::on_rank(ConnectionId connection, const wire::FromRank& message, Time now) {
    auto known = rank_of_.find(connection);
    if (refused_.contains(connection)) return take();  // half closed: nobody would hear an answer
    if (message.has_hello() && known == rank_of_.end()) {
        hello(connection, message.hello(), now);
    } else if (message.has_status()) {
        tell_status(connection, message.status().summary());
    } else if (message.has_usage()) {
        tell_usage(connection);
    } else if (known == rank_of_.end()) {
        out_.close.push_back(connection);  // no hello first: not libdp
    } else if (message.has_request()) {
        request(connection, known->second, message.request(), now);
    } else if (message.has_ready()) {
        rank_event(known->second, [&](wire::RankEvent& e) {
            e.set_ready(true);
            e.set_at_ms(now.count());
        });
    } else if (message.has_phases()) {
        out_.pages.push_back({connection, message.phases().fd()});
    } else if (message.has_progress()) {
        steps_[known->second] = message.progress().step();
    } else if (message.has_goodbye()) {
        good_news(known->second, now, [](wire::RankEvent& e) { e.set_goodbye(true); });
        forget(connection, now);
        out_.close.push_back(connection);
    }
    return take();
}

NodeActions Node::on_rank_closed(ConnectionId connection, Time now) {
    refused_.erase(connection);
    asking_.erase(connection);
    auto known = rank_of_.find(connection);
    if (known != rank_of_.end()) {
        rank_event(known->second, [](wire::RankEvent& e) { e.set_vanished(true); });
        forget(connection, now);
    }
    return take();
}

void Node::hello(ConnectionId connection, const wire::Hello& hello, Time now) {
    auto refuse = [&](const std::string& why) {
        reply(connection, 0, wire::INVALID, why);
        out_.close.push_back(connection);
        refused_.insert(connection);
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
    if (hello.world_size() != config_.world_size) {
        refuse("rank " + std::to_string(hello.rank()) + " believes in a world of " +
               std::to_string(hello.world_size()) + ", and this step has one of " +
               std::to_string(config_.world_size) + "; something changed DP_WORLD_SIZE in its environment");
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
    if (abort_) {
        wire::ToRank message;
        *message.mutable_abort() = *abort_;
        out_.to_ranks.emplace_back(connection, std::move(message));
    } else if (!deaths_.reason().empty()) {
        wire::ToRank message;
        *message.mutable_deaths() = deaths_;
        out_.to_ranks.emplace_back(connection, std::move(message));
    }
    steps_.erase(hello.rank());  // an earlier program's
    auto* told = hellos_.add_ranks();
    told->set_rank(hello.rank());
    told->set_pid(hello.pid());
    told->set_at_ms(now.count());
    if (!tell_hellos_at_) tell_hellos_at_ = now + kGather;
    said_hello_.insert(hello.rank());
    if (said_hello_.size() == config_.ranks.size()) tell_hellos();
}

void Node::request(ConnectionId connection, uint32_t rank, const wire::Request& request, Time now) {
    if (const std::string why = too_large(request); !why.empty())
        return reply(connection, request.id(), wire::TOO_LARGE, why);
    if (broker_gone_ && !loss_)
        return reply(
            connection, request.id(), wire::LOST,
            "the rendezvous daemon on " + config_.broker_host + " is gone (rank 0's node has finished)");
    waiting_.insert({rank, request.id()});
    if (request.has_arrive()) {
        auto arrived =
            gatherings_.arrive({rank, request.id()}, request.arrive(), now, clamped(request.timeout_ms()));
        if (arrived) tell_arrival(std::move(*arrived));
        return;
    }
    wire::FromNode up;
    up.mutable_request()->set_rank(rank);
    *up.mutable_request()->mutable_request() = request;
    tell_broker(std::move(up));
}

// Why a request would not fit a frame on its way to the broker, or be refused there; "" where it is good.
std::string Node::too_large(const wire::Request& request) const {
    if (request.ByteSizeLong() > kMaxFrame - kWrapping)
        return "a request of " + std::to_string(request.ByteSizeLong()) + " bytes is too large";
    if (request.arrive().value().size() > DP_MAX_VALUE_BYTES)
        return "a value has at most " + std::to_string(DP_MAX_VALUE_BYTES) + " bytes";
    if (request.arrive().group().size() > kMaxGroupName)
        return "a group's name has at most " + std::to_string(kMaxGroupName) + " bytes";
    return unfit(request.arrive().facts()).value_or("");
}

void Node::forget(ConnectionId connection, Time now) {
    const uint32_t rank = rank_of_[connection];
    connection_.erase(rank);
    rank_of_.erase(connection);
    std::erase_if(waiting_, [&](const Caller& caller) { return caller.rank == rank; });
    gatherings_.withdraw(rank);
    report_exit(rank, now);
}

void Node::reply(ConnectionId connection, uint64_t id, wire::Status status, const std::string& why) {
    wire::ToRank message;
    message.mutable_reply()->set_id(id);
    message.mutable_reply()->set_status(status);
    message.mutable_reply()->set_error(why);
    out_.to_ranks.emplace_back(connection, std::move(message));
}

void Node::answer(const std::vector<Caller>& callers, const wire::Reply& reply) {
    const auto common = std::make_shared<wire::ToRank>();
    *common->mutable_reply() = reply;
    for (const Caller& caller : callers) {
        if (reply.status() != wire::OK) gatherings_.failed(caller);
        // What a process asked that is gone is not for the one that came after it.
        if (waiting_.erase(caller) == 0) continue;
        auto found = connection_.find(caller.rank);
        if (found == connection_.end()) continue;
        wire::ToRank own;
        own.mutable_reply()->set_id(caller.id);
        out_.to_ranks.emplace_back(found->second, Parts<wire::ToRank>(std::move(own), common));
    }
}

void Node::tell_ranks(wire::ToRank message) {
    const auto common = std::make_shared<const wire::ToRank>(std::move(message));
    for (const auto& [connection, rank] : rank_of_)
        out_.to_ranks.emplace_back(connection, Parts<wire::ToRank>({}, common));
}

// Ranks that come later hear of it, too.
void Node::tell_deaths(const wire::Deaths& deaths) {
    if (deaths_.reason().empty()) deaths_.set_reason(deaths.reason());
    deaths_.mutable_ranks()->MergeFrom(deaths.ranks());
    wire::ToRank told;
    *told.mutable_deaths() = deaths;
    tell_ranks(std::move(told));
}

// Of ranks that wait for an answer: there will be none.
void Node::end_calls(const std::string& why) {
    wire::Reply reply;
    reply.set_status(wire::LOST);
    reply.set_error(why);
    answer({waiting_.begin(), waiting_.end()}, reply);
    gatherings_ = Gatherings(config_.ranks);
}

// The same for those who wait for a status or the ranks' use of their time.
void Node::end_questions(const std::string& why) {
    for (ConnectionId connection : std::exchange(asking_, {})) {
        reply(connection, 0, wire::LOST, why);
        out_.close.push_back(connection);
    }
}

// Where there is no broker it is told, and closed.
bool Node::may_ask(ConnectionId connection) {
    if (joined_ && !broker_gone_) return true;
    reply(connection, 0, wire::LOST,
          broker_gone_
              ? "the rendezvous daemon on " + config_.broker_host + " is gone"
              : "this node has not reached the rendezvous daemon on " + config_.broker_host + " yet");
    out_.close.push_back(connection);
    return false;
}

void Node::tell_status(ConnectionId connection, bool summary) {
    if (!may_ask(connection)) return;
    wire::FromNode message;
    message.mutable_status()->set_connection(connection);
    message.mutable_status()->set_summary(summary);
    asking_.insert(connection);
    tell_broker(std::move(message));
}

void Node::tell_usage(ConnectionId connection) {
    if (!may_ask(connection) || !asking_.insert(connection).second) return;
    wire::FromNode message;
    message.mutable_ask_usage()->set_connection(connection);
    tell_broker(std::move(message));
}

}  // namespace dp
