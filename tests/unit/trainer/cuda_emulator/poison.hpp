// SPDX-License-Identifier: Apache-2.0
//
// The shared memory of a kernel's blocks. What a block has not written is no number: at first its shared variables are filled with
// NaNs, and before each kernel the beginning of each thread's stack. A kernel that relies on what the last block left, or on zeros,
// computes nonsense. Of blocks that are there at once, each has its own: the variables are those of the block that goes on, and what
// the others have is kept meanwhile.
#pragma once

#include <cstddef>
#include <vector>

#include "shared_memory.hpp"

namespace dp::cuda_emulator {

// What a block that does not go on has in each variable; empty where that is poison.
using KeptVariables = std::vector<std::vector<char>>;

// For one launch at a time. Between launches all is poison.
class PoisonedMemory {
 public:
    explicit PoisonedMemory(const SharedMemory& memory);
    PoisonedMemory(const PoisonedMemory&) = delete;
    PoisonedMemory& operator=(const PoisonedMemory&) = delete;
    ~PoisonedMemory();
    // A copy of what the block that goes on has; and another one's, which goes on now. A new one has kept nothing.
    void keep(KeptVariables& kept) const;
    void bring(const KeptVariables& kept);
    // The function that has this mark (device_code.hpp) is run.
    void note(const void* mark);

 private:
    const SharedMemory& memory_;
    std::vector<const void*> marks_;  // of functions that have been run
    std::vector<std::size_t> used_;   // these functions' variables
};

void poison_stack(char* end);

}  // namespace dp::cuda_emulator
