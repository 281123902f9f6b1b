// SPDX-License-Identifier: Apache-2.0
//
// A barrier of the ranks of a node: a few words in memory that all of them map, and a futex, so that a
// waiting rank leaves the CPU to the others. Used by node_communicator.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// The part in shared memory, initially zero. No locks: a rank may be killed at any instruction.
struct SharedBarrier {
    std::atomic<std::uint32_t> arrived;
    // The futex word: twice the number of rounds that all have passed, plus one once the barrier is broken.
    alignas(64) std::atomic<std::uint32_t> state;
};

// One rank's side.
class NodeBarrier {
 public:
    // `timeout` is that of each wait, without the time in which this rank is stopped.
    NodeBarrier(SharedBarrier& shared, std::uint32_t ranks, std::chrono::milliseconds timeout)
        : shared_(shared), ranks_(ranks), timeout_(timeout) {}

    // Waits for the other ranks. Fails if the barrier is broken, or after the timeout.
    Result<void> wait();

    // Ends all waits of this and the other ranks, permanently. From any thread.
    void break_off();

 private:
    SharedBarrier& shared_;
    const std::uint32_t ranks_;
    const std::chrono::milliseconds timeout_;
};

}  // namespace dp::trainer
