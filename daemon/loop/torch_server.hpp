// SPDX-License-Identifier: Apache-2.0
//
// The broker's server for PyTorch: TCPStore's protocol on MASTER_PORT (--dp-store=torch). The protocol has no
// authentication and PyTorch unpickles what it reads, so a connection is only a descriptor until the engine
// knows its owner (engine/peer_authorization.hpp): not a byte of it is read, parsed or answered.
// torch/store.hpp serves accepted connections, within the limits of both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "engine/peer_authorization.hpp"
#include "loop/buffers.hpp"
#include "loop/listener.hpp"
#include "loop/numbered.hpp"
#include "torch/store.hpp"

namespace dp {

// The limit on accepted connections. PyTorch uses two per rank; the rest is for programs that open more.
inline constexpr size_t kTorchClientsARank = 8;
inline constexpr size_t kMoreTorchClients = 256;
// A client with this much to read is neither answered nor read from until it has read.
inline constexpr size_t kTorchUnsent = size_t{1} << 20;
// A client with more to read (notifications of watched keys come unasked) is closed.
inline constexpr size_t kMaxTorchUnsent = kTorchUnsent + 2 * kMaxTorchReply;

class TorchServer {
 public:
    // Asks who owns the connection; decide delivers the answer. The engine limits how many wait.
    using OnConnection = std::function<void(const wire::WhoOwns&)>;

    // A program on that node has opened the store.
    using OnArrival = std::function<void(uint32_t node)>;

    TorchServer(event_base* base, int socket, uint32_t world_size, RejectedPeers& rejected,
                OnConnection on_connection, OnArrival on_arrival);

    void decide(const PeerAuthorization::Decision& decision);

    size_t clients() const { return clients_.size(); }

 private:
    struct Client {
        TorchServer* server = nullptr;
        TorchClient id = 0;
        std::string address;
        uint32_t node = 0;
        BufferPtr buffer;
    };
    struct Stranger {
        Fd socket;
        std::string address;
    };

    event_base* base_;
    size_t most_clients_;
    RejectedPeers& rejected_;
    OnConnection on_connection_;
    OnArrival on_arrival_;
    TorchStore store_;
    std::map<uint64_t, Stranger> unauthorized_;  // by a number that no other server gives
    Numbered<Client> clients_;
    Listener listener_;

    void accept(Fd socket);
    void admit(uint32_t node, Stranger stranger);
    void refuse(const std::string& address, const std::string& why);
    void serve(Client& client);
    void write(Client& client, const TorchSend& send);
    void drop(Client& client);

    static void on_bytes(bufferevent*, void* client);
};

}  // namespace dp
