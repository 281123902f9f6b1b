// SPDX-License-Identifier: Apache-2.0
//
// The broker's server for the other nodes' relays: TCP, and nobody gets past the handshake without the step's
// secret. Until then they are few (kMaxUnproven), small (kMaxHandshakeFrame) and short (kHandshakeSeconds).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "dp.pb.h"
#include "loop/connection.hpp"
#include "loop/handshake.hpp"
#include "loop/listener.hpp"
#include "loop/numbered.hpp"

namespace dp {

inline constexpr size_t kMaxUnproven = 1024;
inline constexpr int kHandshakeSeconds = 5;

class BrokerServer {
 public:
    using OnMessage = std::function<void(uint32_t node, const wire::FromNode&)>;
    using OnLost = std::function<void(uint32_t node, const std::string& why)>;

    // This node's generation, and whether its roll is settled: then relays of earlier generations are told to end.
    struct GenerationState {
        uint32_t generation = 0;
        bool is_settled = false;
    };

    BrokerServer(event_base* base, int socket, std::string secret, uint32_t nodes,
                 std::function<GenerationState()> state, RejectedPeers& rejected, OnMessage on_message,
                 OnLost on_lost);

    void send(uint32_t node, const SharedMessage<wire::ToNode>& message);
    // Closes after everything has been sent.
    void close(uint32_t node);
    void close_all();
    // Proven nodes that have not closed yet.
    bool has_nodes() const { return !by_node_.empty(); }

 private:
    struct Peer {
        uint64_t id = 0;
        std::string address;
        std::string nonce;
        std::optional<uint32_t> node;  // once proven
        std::optional<Connection> connection;
        std::optional<Timer> deadline;
    };

    event_base* base_;
    std::string secret_;
    uint32_t nodes_;
    std::function<GenerationState()> state_;
    uint16_t port_;
    RejectedPeers& rejected_;
    OnMessage on_message_;
    OnLost on_lost_;
    Numbered<Peer> peers_;
    std::set<uint64_t> unproven_;  // oldest first
    std::map<uint32_t, Peer*> by_node_;
    Listener listener_;

    void accept(Fd socket);
    void on_frame(Peer& peer, std::string_view body);
    void on_closed(Peer& peer, const std::string& why, bool over_limit);
    void prove(Peer& peer, std::string_view body);
    void accept(Peer& peer, const ProofText& relay);
    void refuse(Peer& peer, const std::string& why);
    void lose(Peer& peer, const std::string& why);
    void drop(Peer& peer);
};

}  // namespace dp
