// SPDX-License-Identifier: Apache-2.0
#include "loop/broker_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fd.hpp"
#include "framing.hpp"
#include "loop/handshake.hpp"
#include "loop/tcp.hpp"

namespace dp {

BrokerLink::BrokerLink(event_base* base, const std::vector<std::string>& addresses,
                       const std::vector<uint16_t>& ports, std::string secret, NodeOfGeneration node,
                       Events events)
    : base_(base),
      secret_(std::move(secret)),
      node_(node),
      events_(std::move(events)),
      // Any of the addresses may lead to the first port.
      pace_(addresses.size(), addresses.size() * ports.size()),
      attempts_(base),
      try_timer_(base, [this] { try_next(); }),
      flush_(base, [this] { flush(); }) {
    for (uint16_t port : ports)
        for (const auto& address : addresses) targets_.push_back({address, port});
    try_next();
}

void BrokerLink::try_next() {
    if (joined_) return;
    while (next_target_ < pace_.width()) {
        const size_t target = next_target_++;
        const auto is_there = [&](const auto& attempt) { return attempt.second.target == target; };
        if (!std::any_of(attempts_.begin(), attempts_.end(), is_there) && begin(target))
            return try_timer_.after(kStagger);
    }
    next_target_ = 0;
    // A silent peer that took a connection may be the broker's node, whose daemon is about to start.
    try_timer_.after(pace_.rest(attempts_.size() > 0 ? kStagger : kFirstPause));
}

bool BrokerLink::begin(size_t target) {
    const auto address = socket_address(targets_[target].address, targets_[target].port);
    if (!address) return false;
    Fd fd(socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return false;
    prepare_broker_socket(fd.get());
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->size) != 0 &&
        errno != EINPROGRESS)
        return false;
    Attempt& attempt = attempts_.add();
    attempt.target = target;
    attempt.deadline.emplace(base_, [this, &attempt] { end(attempt); });
    attempt.deadline->after(kAttemptTimeout);
    // A failed connect shows as an error on the first read.
    attempt.connection.emplace(base_, fd.release(), kMaxHandshakeFrame);
    attempt.connection->start([this, &attempt](std::string_view body) { on_frame(attempt, body); },
                              [this, &attempt](const std::string& why, bool) { on_closed(attempt, why); });
    return true;
}

void BrokerLink::on_closed(Attempt& attempt, const std::string& why) {
    const bool was_joined = joined_ == &attempt;
    end(attempt);
    if (was_joined)
        events_.on_lost(why, attempt.connection->closed_by_peer());
    else if (events_.on_refused)
        events_.on_refused();
    else if (next_target_ != 0)  // refused: the next candidate at once, unless in a pause between rounds
        try_timer_.after(Time(0));
    else if (attempts_.size() == 0)
        try_timer_.after(kFirstPause);
}

void BrokerLink::end(Attempt& attempt) {
    if (joined_ == &attempt) joined_ = nullptr;
    attempt.connection->stop();
    if (attempt.deadline) attempt.deadline->cancel();
    attempts_.drop(attempt.id);
}

void BrokerLink::on_frame(Attempt& attempt, std::string_view body) {
    if (joined_ == &attempt) {
        if (const auto message = parse_message<wire::ToNode>(body)) return events_.on_message(*message);
        end(attempt);
        return events_.on_lost("it sent a message that does not parse", false);
    }
    if (attempt.expected.empty()) return answer(attempt, body);
    const auto accept = parse_message<wire::Accept>(body);
    if (accept && proof_equals(accept->proof(), attempt.expected))
        join(attempt);
    else
        end(attempt);
}

void BrokerLink::answer(Attempt& attempt, std::string_view body) {
    const auto challenge = parse_message<wire::Challenge>(body);
    if (!challenge || challenge->nonce().size() != kNonceBytes || challenge->protocol() != kNodeProtocol) {
        if (challenge && challenge->protocol() != kNodeProtocol)
            events_.on_other_version(challenge->protocol());
        return end(attempt);
    }
    wire::Response response;
    response.set_nonce(make_nonce());
    response.set_node_rank(node_.node_rank);
    response.set_generation(node_.generation);
    const Target& target = targets_[attempt.target];
    ProofText about{Prover::relay,    challenge->nonce(), response.nonce(), node_.node_rank,
                    node_.generation, target.port,        target.address};
    response.set_proof(make_proof(secret_, about));
    about.prover = Prover::broker;
    attempt.expected = make_proof(secret_, about);
    attempt.connection->send(to_frame(response));
}

void BrokerLink::join(Attempt& attempt) {
    joined_ = &attempt;
    try_timer_.cancel();
    attempt.deadline.reset();
    attempt.connection->set_frame_limit(kMaxFrame);
    for (auto it = attempts_.begin(); it != attempts_.end();)
        if (Attempt& other = (it++)->second; &other != &attempt) end(other);
    events_.on_joined(local_end(attempt.connection->fd()).address);
}

void BrokerLink::send(const wire::FromNode& message) {
    const bool has_a_lease = message.alive().lease();
    if (!joined_ || (message.has_alive() && !has_a_lease && is_on_its_way(joined_->connection->fd()))) return;
    unsent_ += to_frame(message);
    flush_.at_end_of_turn();
}

void BrokerLink::flush() {
    const std::string frames = std::exchange(unsent_, {});
    if (joined_ && !frames.empty()) joined_->connection->send(frames);
}

bool BrokerLink::is_idle() const {
    return joined_ && joined_->connection->is_idle();
}

void BrokerLink::finish() {
    flush();
    if (joined_) joined_->connection->finish();
}

}  // namespace dp
