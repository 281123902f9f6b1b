// SPDX-License-Identifier: Apache-2.0
//
// The broker's server for the relays of the other nodes: TCP, and nobody gets past the handshake
// without the step's secret. Unproven connections are few (kMaxUnproven), small (kMaxHandshakeFrame)
// and short-lived (kHandshakeSeconds).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "dp.pb.h"
#include "loop/connection.hpp"
#include "loop/deferred.hpp"
#include "loop/listener.hpp"
#include "loop/log.hpp"
#include "loop/timer.hpp"

namespace dp {

inline constexpr size_t kMaxUnproven = 1024;
inline constexpr int kHandshakeSeconds = 5;

class BrokerServer {
 public:
    using OnMessage = std::function<void(uint32_t node, const wire::FromNode&)>;
    using OnLost = std::function<void(uint32_t node, const std::string& why)>;

    BrokerServer(event_base* base, int socket, std::string secret, uint32_t nodes, RejectedPeers& rejected,
                 OnMessage on_message, OnLost on_lost);

    // `following`: the rest of the message, if many nodes get the same (to_frame).
    void send(uint32_t node, const wire::ToNode& message, const SharedBytes& following = nullptr);
    // Closes after everything has been sent.
    void close(uint32_t node);
    void close_all();
    // Proven nodes that have not closed yet.
    bool has_nodes() const { return !by_node_.empty(); }

 private:
    struct Peer {
        std::unique_ptr<Connection> connection;
        std::unique_ptr<Timer> deadline;
        std::string nonce;
        std::string address;
        std::optional<uint32_t> node;  // once proven
    };
    using PeerId = uint64_t;

    event_base* base_;
    std::string secret_;
    uint32_t nodes_;
    uint16_t port_;
    RejectedPeers& rejected_;
    OnMessage on_message_;
    OnLost on_lost_;
    std::map<PeerId, Peer> peers_;
    std::deque<PeerId> unproven_;  // oldest first; may hold some that are over
    std::map<uint32_t, PeerId> by_node_;
    FreedLater<PeerId> over_{base_, [this](PeerId id) { peers_.erase(id); }};
    PeerId next_ = 1;
    Listener listener_;

    void accept(Fd socket);
    void make_room();
    void on_frame(PeerId id, std::string_view body);
    void prove(PeerId id, Peer& peer, std::string_view body);
    Connection* connection_of(uint32_t node);
    void refuse(PeerId id, const std::string& why);
    void drop(PeerId id);
};

}  // namespace dp
