// SPDX-License-Identifier: Apache-2.0
#include "loop/broker_server.hpp"

#include <algorithm>

#include "framing.hpp"
#include "loop/broker_socket.hpp"
#include "loop/handshake.hpp"
#include "loop/peer_address.hpp"

namespace dp {

BrokerServer::BrokerServer(event_base* base, int socket, std::string secret, uint32_t nodes,
                           RejectedPeers& rejected, OnMessage on_message, OnLost on_lost)
    : base_(base),
      secret_(std::move(secret)),
      nodes_(nodes),
      port_(local_port(socket)),
      rejected_(rejected),
      on_message_(std::move(on_message)),
      on_lost_(std::move(on_lost)),
      listener_(
          base, socket, [this](Fd fd) { accept(std::move(fd)); },
          [this](int error) { rejected_.no_room(error); }) {}

// The oldest stranger makes room for a newcomer. A relay proves itself within a round trip, and there is room
// for all relays of the step and many turns of the loop, so it is never the oldest.
void BrokerServer::make_room() {
    auto counts = [&](PeerId id) {
        auto peer = peers_.find(id);
        return peer != peers_.end() && !peer->second.node && !over_.contains(id);
    };
    std::erase_if(unproven_, [&](PeerId id) { return !counts(id); });
    if (unproven_.size() < std::max<size_t>(kMaxUnproven, size_t{4} * nodes_)) return;
    const PeerId oldest = unproven_.front();
    unproven_.pop_front();
    refuse(oldest, "too many connections that prove nothing");
}

void BrokerServer::accept(Fd socket) {
    make_room();
    prepare_broker_socket(socket.get());
    const PeerId id = next_++;
    Peer& peer = peers_[id];
    peer.address = peer_address(socket.get());
    peer.nonce = make_nonce();
    peer.connection = std::make_unique<Connection>(base_, socket.release(), kMaxHandshakeFrame);
    peer.deadline = std::make_unique<Timer>(base_, [this, id] {
        refuse(id, "it proved nothing within " + std::to_string(kHandshakeSeconds) + " s");
    });
    peer.deadline->after(std::chrono::seconds(kHandshakeSeconds));
    unproven_.push_back(id);

    peer.connection->start(
        [this, id](std::string_view body) {
            on_frame(id, body);
            return !over_.contains(id);
        },
        [this, id](const std::string& why) {
            auto found = peers_.find(id);
            if (found == peers_.end() || over_.contains(id)) return;
            if (auto node = found->second.node) {
                drop(id);
                on_lost_(*node, why);
            } else if (why.find("limit") != std::string::npos) {
                refuse(id, why);
            } else {
                drop(id);  // somebody looked and went: a port scan, or a relay that had found another way
            }
        });

    wire::Challenge challenge;
    challenge.set_protocol(kProtocol);
    challenge.set_nonce(peer.nonce);
    peer.connection->send(to_frame(challenge));
}

void BrokerServer::on_frame(PeerId id, std::string_view body) {
    auto found = peers_.find(id);
    if (found == peers_.end() || over_.contains(id)) return;
    if (!found->second.node) {
        prove(found->first, found->second, body);
        return;
    }
    const uint32_t node = *found->second.node;
    auto message = parse_message<wire::FromNode>(body);
    if (message) {
        on_message_(node, *message);
    } else {
        drop(id);
        on_lost_(node, "it sent a message that does not parse");
    }
}

void BrokerServer::prove(PeerId id, Peer& peer, std::string_view body) {
    auto response = parse_message<wire::Response>(body);
    if (!response || response->nonce().size() != kNonceBytes) {
        refuse(id, "it sent no answer to the challenge");
        return;
    }
    const std::string here = local_address(peer.connection->fd());
    ProofText about{Prover::relay, peer.nonce, response->nonce(), response->node_rank(), port_, here};
    const std::string expected = make_proof(secret_, about);
    if (!proof_equals(expected, response->proof())) {
        refuse(id, "it does not know this step's secret");
        return;
    }
    if (response->node_rank() >= nodes_ || by_node_.contains(response->node_rank())) {
        drop(id);  // no stranger: a relay that found two ways here
        return;
    }
    peer.node = response->node_rank();
    by_node_[*peer.node] = id;
    peer.deadline.reset();
    peer.connection->set_frame_limit(kMaxFrame);
    wire::Accept accept;
    about.prover = Prover::broker;
    accept.set_proof(make_proof(secret_, about));
    peer.connection->send(to_frame(accept));
}

void BrokerServer::refuse(PeerId id, const std::string& why) {
    auto found = peers_.find(id);
    if (found == peers_.end() || over_.contains(id)) return;
    rejected_.mention("a connection from " + found->second.address, why);
    drop(id);
}

void BrokerServer::drop(PeerId id) {
    auto found = peers_.find(id);
    if (found == peers_.end()) return;
    if (auto node = found->second.node; node && by_node_[*node] == id) by_node_.erase(*node);
    found->second.connection->stop();
    if (found->second.deadline) found->second.deadline->cancel();
    over_.insert(id);
}

Connection* BrokerServer::connection_of(uint32_t node) {
    auto id = by_node_.find(node);
    if (id == by_node_.end()) return nullptr;
    auto peer = peers_.find(id->second);
    return peer == peers_.end() ? nullptr : peer->second.connection.get();
}

void BrokerServer::send(uint32_t node, const wire::ToNode& message, const SharedBytes& following) {
    Connection* connection = connection_of(node);
    if (!connection || (message.has_alive() && is_on_its_way(connection->fd()))) return;
    connection->send(to_frame(message, following ? following->size() : 0), following);
}

void BrokerServer::close(uint32_t node) {
    if (Connection* connection = connection_of(node)) connection->finish();
}

void BrokerServer::close_all() {
    for (const auto& [node, id] : by_node_) close(node);
}

}  // namespace dp
