// SPDX-License-Identifier: Apache-2.0
#include "loop/broker_server.hpp"

#include <algorithm>

#include "engine/ending.hpp"
#include "framing.hpp"
#include "loop/handshake.hpp"
#include "loop/tcp.hpp"

namespace dp {

BrokerServer::BrokerServer(event_base* base, int socket, std::string secret, uint32_t nodes,
                           std::function<GenerationState()> state, RejectedPeers& rejected,
                           OnMessage on_message, OnLost on_lost)
    : base_(base),
      secret_(std::move(secret)),
      nodes_(nodes),
      state_(std::move(state)),
      port_(local_end(socket).port),
      rejected_(rejected),
      on_message_(std::move(on_message)),
      on_lost_(std::move(on_lost)),
      peers_(base),
      listener_(base, socket, rejected, [this](Fd fd) { accept(std::move(fd)); }) {}

void BrokerServer::accept(Fd socket) {
    // The oldest stranger makes room for a newcomer. A relay proves itself within a round trip, and there is
    // room for all relays of the step and many turns of the loop, so it is never the oldest.
    if (unproven_.size() >= std::max<size_t>(kMaxUnproven, size_t{4} * nodes_))
        refuse(*peers_.find(*unproven_.begin()), "too many connections that have not proven themselves");
    prepare_broker_socket(socket.get());
    Peer& peer = peers_.add();
    unproven_.insert(peer.id);
    peer.address = peer_end(socket.get()).address;
    peer.nonce = make_nonce();
    peer.deadline.emplace(base_, [this, &peer] {
        refuse(peer, "it proved nothing within " + std::to_string(kHandshakeSeconds) + " s");
    });
    peer.deadline->after(std::chrono::seconds(kHandshakeSeconds));
    peer.connection.emplace(base_, socket.release(), kMaxHandshakeFrame);
    peer.connection->start(
        [this, &peer](std::string_view body) { on_frame(peer, body); },
        [this, &peer](const std::string& why, bool over_limit) { on_closed(peer, why, over_limit); });
    wire::Challenge challenge;
    challenge.set_protocol(kNodeProtocol);
    challenge.set_nonce(peer.nonce);
    peer.connection->send(to_frame(challenge));
}

void BrokerServer::on_frame(Peer& peer, std::string_view body) {
    if (!peer.node) return prove(peer, body);
    if (const auto message = parse_message<wire::FromNode>(body))
        on_message_(*peer.node, *message);
    else
        lose(peer, "it sent a message that does not parse");
}

void BrokerServer::on_closed(Peer& peer, const std::string& why, bool over_limit) {
    if (peer.node)
        lose(peer, why);
    else if (over_limit)
        refuse(peer, why);
    else
        drop(peer);  // somebody looked and went: a port scan, or a relay that had found another way
}

void BrokerServer::prove(Peer& peer, std::string_view body) {
    auto response = parse_message<wire::Response>(body);
    if (!response || response->nonce().size() != kNonceBytes)
        return refuse(peer, "it sent no answer to the challenge");
    const std::string here = local_end(peer.connection->fd()).address;
    ProofText about{
        Prover::relay, peer.nonce, response->nonce(), response->node_rank(), response->generation(),
        port_,         here};
    if (!proof_equals(make_proof(secret_, about), response->proof()))
        return refuse(peer, "it does not know this step's secret");
    const GenerationState own = state_();
    if (about.generation < own.generation && own.is_settled) {
        accept(peer, about);
        peer.connection->send(to_frame(wrap(&wire::ToNode::mutable_abort,
                                            abort_message("the step goes on without this node", kBroken))));
    }
    if (about.generation != own.generation) return drop(peer);  // a relay that comes too late, or too early
    if (response->node_rank() >= nodes_ || by_node_.contains(response->node_rank()))
        return drop(peer);  // no stranger: a relay that found two ways here
    unproven_.erase(peer.id);
    peer.node = response->node_rank();
    by_node_[*peer.node] = &peer;
    peer.deadline.reset();
    peer.connection->set_frame_limit(kMaxFrame);
    accept(peer, about);
}

void BrokerServer::accept(Peer& peer, const ProofText& relay) {
    ProofText about = relay;
    about.prover = Prover::broker;
    wire::Accept accept;
    accept.set_proof(make_proof(secret_, about));
    peer.connection->send(to_frame(accept));
}

void BrokerServer::refuse(Peer& peer, const std::string& why) {
    rejected_.mention("a connection from " + peer.address, why);
    drop(peer);
}

void BrokerServer::lose(Peer& peer, const std::string& why) {
    drop(peer);
    on_lost_(*peer.node, why);
}

void BrokerServer::drop(Peer& peer) {
    unproven_.erase(peer.id);
    if (peer.node) by_node_.erase(*peer.node);
    peer.connection->stop();
    if (peer.deadline) peer.deadline->cancel();
    peers_.drop(peer.id);
}

void BrokerServer::send(uint32_t node, const SharedMessage<wire::ToNode>& message) {
    const auto peer = by_node_.find(node);
    if (peer == by_node_.end()) return;
    Connection& connection = *peer->second->connection;
    const bool holds_a_lease = message.own.alive().heard_ms() > 0;
    if (message.own.has_alive() && !holds_a_lease && is_on_its_way(connection.fd())) return;
    connection.send(message);
}

void BrokerServer::close(uint32_t node) {
    if (const auto peer = by_node_.find(node); peer != by_node_.end()) peer->second->connection->finish();
}

void BrokerServer::close_all() {
    for (const auto& [node, peer] : by_node_) peer->connection->finish();
}

}  // namespace dp
