// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a node wait for each other: a few words in memory that all of them map, and the kernel's
// futex, so that who waits leaves the CPU to the others. node_communicator.cpp uses it.
#ifndef TRAINER_PARALLEL_NODE_BARRIER_HPP
#define TRAINER_PARALLEL_NODE_BARRIER_HPP

#include <atomic>
#include <chrono>
#include <cstdint>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// The part in shared memory, of zeros at the beginning. No locks: a rank may be killed at any instruction.
struct SharedBarrier {
    std::atomic<std::uint32_t> arrived;
    // The word that is waited for: twice the number of rounds that all have passed, and one more once it is
    // broken.
    alignas(64) std::atomic<std::uint32_t> state;
};

// Of one rank.
class NodeBarrier {
 public:
    // `passed`: rounds that all have passed before.
    NodeBarrier(SharedBarrier& shared, std::uint32_t ranks, std::uint32_t passed = 0)
        : shared_(shared), ranks_(ranks), passed_(passed) {}

    enum class Outcome { passed, broken, too_late };

    // Until all ranks have called it as often. Time in which this rank is stopped does not count.
    Outcome wait(std::chrono::milliseconds patience);

    // Ends all waits of this and the other ranks, for ever. From any thread.
    void break_off();

 private:
    SharedBarrier& shared_;
    const std::uint32_t ranks_;
    std::uint32_t passed_;
};

// The same, with what came between in words.
Result<void> meet(NodeBarrier& barrier, std::chrono::milliseconds patience);

}  // namespace dp::trainer

#endif
