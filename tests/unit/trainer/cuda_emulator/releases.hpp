// SPDX-License-Identifier: Apache-2.0
//
// What puts accesses of different blocks of a kernel in order: a thread's fence before its atomic, and another thread's atomic on the
// same number after it. What the first one could see at its fence, the other one sees from its atomic on. That a thread accessed
// something after its fence, and not before, is known from its block's next barrier or its warp's next exchange on. A
// reader that has no fence after its atomic is not found.
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
    // Whether an access of another block (accesses.hpp) comes before one now.
    bool order(std::uint64_t barriers, std::uint32_t exchanges, std::uint16_t thread, bool other_threads,
               const Now& now) const;

 private:
    using Thread = std::pair<std::uint64_t, std::uint16_t>;  // its block, by its first time
    using Fences = std::map<Thread, Now>;                    // the last one of each thread
    struct Known {
        Fences fences;
        Now since;
    };
    std::map<Thread, Fences> fenced_;                    // by whose fence
    std::map<const void*, Fences> released_;             // by which number
    std::map<std::uint64_t, std::vector<Known>> known_;  // by which block

    bool knows(const Known& known, const Now& now) const;
};

}  // namespace dp::cuda_emulator
