// SPDX-License-Identifier: Apache-2.0
//
// Connections to the other ranks of this node. Each rank sends every other one the descriptor of its memory
// over an abstract unix socket; the connections then tell when a rank is gone, however it ended. No file
// system is involved. Used by node_communicator.cpp.
//
// All ranks of a node take the same two steps, with a barrier between them that also reports failures: so no
// step waits for a rank that does not come.
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

// The socket's name: random, so that no two are equal.
using DoorNumber = std::array<std::int64_t, 2>;

class PeerSockets {
 public:
    // Listens.
    static Result<PeerSockets> open();
    PeerSockets(PeerSockets&&) = default;
    ~PeerSockets();

    const DoorNumber& door() const { return door_; }

    // First step, once all of them listen: connects to each other rank of the node and tells it that this is
    // number `me`, with this file.
    Result<void> call_on(std::span<const DoorNumber> doors, std::size_t me, int file);
    // Second step, once all have connected: receives the others' files, in order; its own place stays empty.
    Result<std::vector<Fd>> let_in(std::size_t ranks, std::size_t me);

    // As soon as one of them is gone, calls `on_gone` once, on a thread of its own; not after this
    // object is destroyed.
    Result<void> watch(std::function<void()> on_gone);

 private:
    DoorNumber door_{};
    Fd listener_;
    std::vector<Fd> called_, let_in_;  // connections; theirs end when the others' processes do
    Fd stop_;
    std::thread watcher_;

    PeerSockets() = default;
};

}  // namespace dp::trainer
