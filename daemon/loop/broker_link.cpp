// SPDX-License-Identifier: Apache-2.0
#include "loop/broker_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fd.hpp"
#include "framing.hpp"
#include "loop/broker_socket.hpp"
#include "loop/handshake.hpp"
#include "loop/peer_address.hpp"

namespace dp {

BrokerLink::BrokerLink(event_base* base, const std::vector<std::string>& addresses,
                       const std::vector<uint16_t>& ports, std::string secret, uint32_t node_rank,
                       Events events)
    : base_(base),
      secret_(std::move(secret)),
      node_rank_(node_rank),
      events_(std::move(events)),
      // Any of the addresses may lead to the first port.
      pace_(addresses.size(), addresses.size() * ports.size()),
      try_timer_(base, [this] { try_next(); }),
      flush_(base, [this] { flush(); }) {
    for (uint16_t port : ports)
        for (const auto& address : addresses) targets_.push_back({address, port});
    try_next();
}

void BrokerLink::try_next() {
    if (joined_ != 0) return;
    while (next_target_ < pace_.width()) {
        const size_t target = next_target_++;
        if (is_at(target) || !begin(target)) continue;
        try_timer_.after(kStagger);
        return;
    }
    next_target_ = 0;
    // A silent peer that took a connection may be the broker's node, whose daemon is about to start.
    try_timer_.after(pace_.rest(is_at_any() ? kStagger : kFirstPause));
}

bool BrokerLink::is_at(size_t target) const {
    return std::any_of(attempts_.begin(), attempts_.end(), [&](const auto& attempt) {
        return attempt.second.target == target && !over_.contains(attempt.first);
    });
}

bool BrokerLink::is_at_any() const {
    return attempts_.size() > over_.size();
}

bool BrokerLink::begin(size_t index) {
    const Target& target = targets_[index];
    auto address = socket_address(target.address, target.port);
    if (!address) return false;
    Fd fd(socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return false;
    prepare_broker_socket(fd.get());
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->size) != 0 &&
        errno != EINPROGRESS)
        return false;
    const uint64_t id = next_attempt_++;
    Attempt& attempt = attempts_[id];
    attempt.target = index;
    // A failed connect shows as an error on the first read.
    attempt.connection = std::make_unique<Connection>(base_, fd.release(), kMaxHandshakeFrame);
    attempt.deadline = std::make_unique<Timer>(base_, [this, id] { end(id); });
    attempt.deadline->after(kAttemptTimeout);
    attempt.connection->start(
        [this, id](std::string_view body) {
            on_frame(id, body);
            return !over_.contains(id);
        },
        [this, id](const std::string& why) {
            const bool was_joined = joined_ == id;
            end(id);
            if (was_joined) {
                events_.on_lost(why);
            } else if (joined_ == 0) {
                // Refused: try the next candidate at once, unless in a pause between rounds.
                if (next_target_ != 0)
                    try_timer_.after(Time(0));
                else if (!is_at_any())
                    try_timer_.after(kFirstPause);
            }
        });
    return true;
}

void BrokerLink::end(uint64_t id) {
    if (auto found = attempts_.find(id); found != attempts_.end()) found->second.connection->stop();
    over_.insert(id);
}

void BrokerLink::on_frame(uint64_t id, std::string_view body) {
    auto found = attempts_.find(id);
    if (found == attempts_.end() || over_.contains(id)) return;
    Attempt& attempt = found->second;
    if (joined_ == id) {
        auto message = parse_message<wire::ToNode>(body);
        if (message) {
            events_.on_message(*message);
        } else {
            end(id);
            events_.on_lost("it sent a message that does not parse");
        }
        return;
    }
    if (attempt.expected.empty()) {
        auto challenge = parse_message<wire::Challenge>(body);
        if (!challenge || challenge->nonce().size() != kNonceBytes || challenge->protocol() != kProtocol) {
            if (challenge && challenge->protocol() != kProtocol)
                events_.on_other_version(challenge->protocol());
            end(id);
            return;
        }
        wire::Response response;
        response.set_nonce(make_nonce());
        response.set_node_rank(node_rank_);
        ProofText about{Prover::relay,
                        challenge->nonce(),
                        response.nonce(),
                        node_rank_,
                        targets_[attempt.target].port,
                        targets_[attempt.target].address};
        response.set_proof(make_proof(secret_, about));
        about.prover = Prover::broker;
        attempt.expected = make_proof(secret_, about);
        attempt.connection->send(to_frame(response));
        return;
    }
    auto accept = parse_message<wire::Accept>(body);
    if (!accept || !proof_equals(accept->proof(), attempt.expected)) {
        end(id);
        return;
    }
    joined_ = id;
    try_timer_.cancel();
    attempt.deadline.reset();
    attempt.connection->set_frame_limit(kMaxFrame);
    for (const auto& [other, unused] : attempts_)
        if (other != id) end(other);
    events_.on_joined(local_address(attempt.connection->fd()));
}

Connection* BrokerLink::joined() const {
    const auto attempt = attempts_.find(joined_);
    return attempt == attempts_.end() || over_.contains(joined_) ? nullptr : attempt->second.connection.get();
}

void BrokerLink::send(const wire::FromNode& message) {
    const Connection* connection = joined();
    if (!connection || (message.has_alive() && is_on_its_way(connection->fd()))) return;
    unsent_ += to_frame(message);
    flush_.ask();
}

void BrokerLink::flush() {
    const std::string frames = std::exchange(unsent_, {});
    if (Connection* connection = frames.empty() ? nullptr : joined()) connection->send(frames);
}

bool BrokerLink::is_idle() const {
    const Connection* connection = joined();
    return connection && connection->is_idle();
}

void BrokerLink::finish() {
    flush();
    if (Connection* connection = joined()) connection->finish();
}

}  // namespace dp
