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
    // `passed`: rounds that all ranks have passed before.
    NodeBarrier(SharedBarrier& shared, std::uint32_t ranks, std::uint32_t passed = 0)
        : shared_(shared), ranks_(ranks), passed_(passed) {}

    enum class Outcome { passed, broken, too_late };

    // Waits until all ranks have called it as often. Time in which this rank is stopped does not count.
    Outcome wait(std::chrono::milliseconds patience);

    // Ends all waits of this and the other ranks, permanently. From any thread.
    void break_off();

 private:
    SharedBarrier& shared_;
    const std::uint32_t ranks_;
    std::uint32_t passed_;
};

// The same, with a message if it was broken.
Result<void> meet(NodeBarrier& barrier, std::chrono::milliseconds patience);

}  // namespace dp::trainer
