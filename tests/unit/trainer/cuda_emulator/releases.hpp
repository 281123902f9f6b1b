// SPDX-License-Identifier: Apache-2.0
//
// What puts accesses of different blocks of a kernel in order: a thread's fence before its atomic, and another thread's atomic on
// the same number after it. What the first one could see at its fence, the other one sees from its atomic on: by volatile reads at
// once, by others once it, or a thread that comes after it, has had a fence, for a cache may still have what was there before.
// Writes and atomics need none: they follow from what the atomic has said. That a thread accessed something after its fence, and
// not before, is known from its block's next barrier or its warp's next exchange on.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "accesses.hpp"

namespace dp::cuda_emulator {

// Of one launch.
class Releases {
 public:
    void note_fence(const Now& now);
    void note_atomic(const void* place, const Now& now);
    enum class Order { none, but_for_a_fence, whole };
    // Whether an access of another block (accesses.hpp) comes before one now; or would, had the one now a fence before it.
    Order order(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread, bool other_threads,
                const Now& now) const;

 private:
    using Thread = std::pair<std::uint64_t, std::uint16_t>;  // its block, by its first time
    using Fences = std::map<Thread, Now>;                    // the last one of each thread
    struct Known {
        Fences fences;
        Now since;
        bool is_fenced;
    };
    std::map<Thread, Fences> fenced_;                    // by whose fence
    std::map<const void*, Fences> released_;             // by which number
    std::map<std::uint64_t, std::vector<Known>> known_;  // by which block

    bool knows(const Known& known, const Now& now) const;
    void learn(const Fences& fences, const Now& now, bool is_fenced);
};

}  // namespace dp::cuda_emulator
