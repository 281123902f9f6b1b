// SPDX-License-Identifier: Apache-2.0
//
// The other ranks of this node, as they are met: each hands every other one the descriptor of its memory over
// an abstract unix socket, and the connections then tell when one is gone, however it went. Nothing of it
// lies in a file system. node_communicator.cpp uses it.
//
// All ranks of a node do the same two steps, with something between them that tells each how the others
// fared (a barrier): so no step waits for a rank that does not come.
#ifndef TRAINER_PARALLEL_NEIGHBOURS_HPP
#define TRAINER_PARALLEL_NEIGHBOURS_HPP

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

// What a rank's socket is named after: random, so that no two are the same.
using DoorNumber = std::array<std::int64_t, 2>;

class Neighbours {
 public:
    // Listens.
    static Result<Neighbours> open();
    Neighbours(Neighbours&&) = default;
    ~Neighbours();

    const DoorNumber& door() const { return door_; }

    // First step: to each other one of the node's ranks, in their order, that it is number `me` and has this
    // file. Once all of them listen.
    Result<void> call_on(std::span<const DoorNumber> doors, std::size_t me, int file);
    // Second step, once all have called: the files of the others, in their order; its own place is empty.
    Result<std::vector<Fd>> let_in(std::size_t ranks, std::size_t me);

    // From now on, as soon as one of them is gone, `on_gone` is called once, on a thread of its own. Not
    // after this object has been destroyed.
    Result<void> watch(std::function<void()> on_gone);

 private:
    DoorNumber door_{};
    Fd listener_;
    std::vector<Fd> called_, let_in_;  // connections; theirs end when the others' processes do
    Fd stop_;
    std::thread watcher_;

    Neighbours() = default;
};

}  // namespace dp::trainer

#endif
