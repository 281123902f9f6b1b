// SPDX-License-Identifier: Apache-2.0
//
// Connections to the other ranks of this node. Each rank sends every other one the descriptor of its memory
// over an abstract unix socket; the connections then tell when a rank is gone, however it ended. No file
// system is involved. Used by node_communicator.cpp.
//
// All ranks of a node first send, then accept, with a barrier between the two that also reports failures: so
// nobody waits for a rank that does not come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// Random, so that no two are equal.
using SocketName = std::array<std::int64_t, 2>;

class PeerSockets {
 public:
    // Listens.
    static Result<PeerSockets> open();
    PeerSockets(PeerSockets&&) = default;
    ~PeerSockets();

    const SocketName& name() const { return name_; }

    // Once all of them listen: connects to each other rank of the node and sends it this rank's local rank
    // `me` and a file.
    Result<void> send_fd(std::span<const SocketName> names, std::size_t me, int file);
    // Once all have sent: the others' files, in the order of local ranks; its own place stays empty.
    Result<std::vector<Fd>> accept_fds(std::size_t ranks, std::size_t me);

    // As soon as one of them is gone, calls `on_gone` once, on a thread of its own; not after this
    // object is destroyed.
    Result<void> watch(std::function<void()> on_gone);

 private:
    SocketName name_{};
    Fd listener_;
    std::vector<Fd> outgoing_, incoming_;  // connections; theirs end when the others' processes do
    Fd stop_;
    std::thread watcher_;

    PeerSockets() = default;
};

}  // namespace dp::trainer
