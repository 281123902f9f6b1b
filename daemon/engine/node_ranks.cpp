// SPDX-License-Identifier: Apache-2.0
//
// The Node's dealings with its ranks: who they are, what they ask, and what they are told (node.hpp).
#include <algorithm>

#include "dp/dp.h"
#include "engine/collectives.hpp"
#include "engine/node.hpp"
#include "framing.hpp"

namespace dp {

// The most that a request grows on its way to the broker.
constexpr size_t kWrapping = 64;

NodeActions Node::on_rank(ConnectionId connection, const wire::FromRank& message, Time now) {
    if (ranks_.is_refused(connection)) return take();  // half closed: nobody would hear an answer
    const auto rank = ranks_.rank_of(connection);
    if (message.has_hello() && !rank) {
        hello(connection, message.hello(), now);
    } else if (!rank) {
        out_.close.push_back(connection);  // no hello first: not libdp
    } else if (message.has_request()) {
        request(connection, *rank, message.request(), now);
    } else if (message.has_ready()) {
        outbox_.send(event_of(*rank, [&](wire::RankEvent& e) {
            e.set_ready(true);
            e.set_at_ms(now.count());
        }));
    } else if (message.has_phases()) {
        out_.pages.push_back({connection, message.phases().fd()});
    } else if (message.has_enable_rejoin()) {
        ranks_.enable_rejoin(connection);
    } else if (message.has_rejoin()) {
        rejoin(*rank, message.rejoin());
    } else if (message.has_progress()) {
        progress(*rank, message.progress().step());
    } else if (message.has_goodbye()) {
        outbox_.batch_exit(event_of(*rank, [](wire::RankEvent& e) { e.set_goodbye(true); }), now);
        forget(connection, *rank, now);
        out_.close.push_back(connection);
    }
    return take();
}

NodeActions Node::on_rank_closed(ConnectionId connection, Time now) {
    askers_.erase(connection);
    if (const auto rank = ranks_.rank_of(connection)) {
        outbox_.send(event_of(*rank, [](wire::RankEvent& e) { e.set_vanished(true); }));
        forget(connection, *rank, now);
    } else {
        ranks_.close(connection);
    }
    return take();
}

// "" if it is accepted.
std::string Node::why_no_hello(const wire::Hello& hello) const {
    if (hello.protocol() != kProtocol)
        return "libdp speaks protocol " + std::to_string(hello.protocol()) + " and the daemon " +
               std::to_string(kProtocol) + "; use libdp and slurm-dp of the same version";
    const std::string rank = "rank " + std::to_string(hello.rank());
    if (std::find(config_.ranks.begin(), config_.ranks.end(), hello.rank()) == config_.ranks.end())
        return rank + " is not on " + config_.host;
    if (hello.world_size() != config_.world_size)
        return rank + " expects a world of " + plural(hello.world_size(), "rank") + ", but this step has " +
               std::to_string(config_.world_size) + "; something changed DP_WORLD_SIZE in its environment";
    if (config_.settings.restarts_ranks() && hello.generation() != generation_.number)
        return rank + " belongs to generation " + std::to_string(hello.generation()) +
               ", and this is generation " + std::to_string(generation_.number) +
               " (DP_GENERATION, or a libdp older than slurm-dp)";
    if (ranks_.connection_of(hello.rank()))
        return "another process is already " + rank +
               "; only one process of a task may open the world at a time";
    return "";
}

void Node::hello(ConnectionId connection, const wire::Hello& hello, Time now) {
    if (const std::string why = why_no_hello(hello); !why.empty()) {
        refuse(connection, 0, wire::INVALID, why);
        out_.close.push_back(connection);
        ranks_.refuse(connection);
        return;
    }
    ranks_.open(connection, hello.rank(), hello.pid());
    out_.to_ranks.emplace_back(connection, wrap(&wire::ToRank::mutable_welcome));
    if (const wire::Abort* aborted = termination_.abort())
        out_.to_ranks.emplace_back(connection, wrap(&wire::ToRank::mutable_abort, *aborted));
    else if (!deaths_.reason().empty())
        out_.to_ranks.emplace_back(connection, wrap(&wire::ToRank::mutable_deaths, deaths_));
    tell_hello(hello.rank(), hello.pid(), now);
}

void Node::tell_hello(uint32_t rank, int32_t pid, Time now) {
    wire::Hellos::Rank said;
    said.set_rank(rank);
    said.set_pid(pid);
    said.set_at_ms(now.count());
    outbox_.batch_hello(said, now);
    if (ranks_.all_said_hello()) outbox_.flush();
}

void Node::request(ConnectionId connection, uint32_t rank, const wire::Request& request, Time now) {
    if (const std::string why = too_large(request); !why.empty())
        return refuse(connection, request.id(), wire::TOO_LARGE, why);
    if (broker_.gone && !broker_.loss)
        return refuse(connection, request.id(), wire::LOST,
                      daemon_of_broker() + " is gone (rank 0's node has finished)");
    waiting_.insert({rank, request.id()});
    if (request.has_arrive()) {
        auto arrived = pending_arrivals_.arrive({rank, request.id()}, request.arrive(), now,
                                                clamped(request.timeout_ms()));
        if (arrived) tell_arrivals({std::move(*arrived)});
        return;
    }
    wire::NodeRequest up;
    up.set_rank(rank);
    *up.mutable_request() = request;
    outbox_.send(wrap(&wire::FromNode::mutable_request, std::move(up)));
}

// Why a request would not fit a frame on its way to the broker, or would be refused there; "" if it is fine.
std::string Node::too_large(const wire::Request& request) const {
    if (request.ByteSizeLong() > kMaxFrame - kWrapping)
        return "a request of " + std::to_string(request.ByteSizeLong()) + " bytes is too large";
    if (request.arrive().value().size() > DP_MAX_VALUE_BYTES)
        return "a value has at most " + std::to_string(DP_MAX_VALUE_BYTES) + " bytes";
    if (request.arrive().group().size() > kMaxGroupName)
        return "a group's name has at most " + std::to_string(kMaxGroupName) + " bytes";
    return unfit(request.arrive().facts()).value_or("");
}

void Node::forget(ConnectionId connection, uint32_t rank, Time now) {
    ranks_.close(connection);
    std::erase_if(waiting_, [&](const Caller& caller) { return caller.rank == rank; });
    pending_arrivals_.withdraw(rank);
    drop_survivor(rank, now);
    report_exit(rank, now);
}

void Node::refuse(ConnectionId connection, uint64_t id, wire::Status status, const std::string& why) {
    wire::Reply reply = reply_with(status, why);
    reply.set_id(id);
    out_.to_ranks.emplace_back(connection, wrap(&wire::ToRank::mutable_reply, std::move(reply)));
}

void Node::answer(const std::vector<Caller>& callers, const wire::Reply& reply) {
    const SharedBytes rest = shared_bytes(wrap(&wire::ToRank::mutable_reply, reply));
    for (const Caller& caller : callers) {
        // The answer to a process that is gone is not for its successor.
        if (waiting_.erase(caller) == 0) continue;
        const auto connection = ranks_.connection_of(caller.rank);
        if (!connection) continue;
        wire::ToRank own;
        own.mutable_reply()->set_id(caller.id);
        out_.to_ranks.emplace_back(*connection, SharedMessage(std::move(own), rest));
    }
}

void Node::tell_ranks(const wire::ToRank& message) {
    const SharedBytes rest = shared_bytes(message);
    for (const auto& [connection, rank] : ranks_.connections())
        out_.to_ranks.emplace_back(connection, SharedMessage(wire::ToRank(), rest));
}

// Ranks that come later are told, too.
void Node::tell_deaths(const wire::Deaths& deaths) {
    if (deaths_.reason().empty()) deaths_.set_reason(deaths.reason());
    deaths_.mutable_ranks()->MergeFrom(deaths.ranks());
    tell_ranks(wrap(&wire::ToRank::mutable_deaths, deaths));
}

// Fails the waiting calls: there will be no answer.
void Node::end_calls(const std::string& why) {
    answer({waiting_.begin(), waiting_.end()}, reply_with(wire::LOST, why));
    pending_arrivals_ = PendingArrivals(config_.ranks);
}

}  // namespace dp
