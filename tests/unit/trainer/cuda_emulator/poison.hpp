// SPDX-License-Identifier: Apache-2.0
//
// What a block has not written is no number: before each block its shared variables are filled with NaNs, and before each kernel
// the beginning of each thread's stack. A kernel that relies on what the last block left, or on zeros, computes nonsense.
#pragma once

#include <cstddef>
#include <vector>

#include "shared_memory.hpp"

namespace dp::cuda_emulator {

// For one launch at a time; `kernel` is the same for the launches of one kernel.
class PoisonedMemory {
 public:
    PoisonedMemory(const SharedMemory& memory, const void* kernel);
    PoisonedMemory(const PoisonedMemory&) = delete;
    PoisonedMemory& operator=(const PoisonedMemory&) = delete;
    ~PoisonedMemory() { before_block(); }  // for the next kernel
    void before_block();
    void after_block();

 private:
    const SharedMemory& memory_;
    std::vector<bool>& is_used_;  // of each variable, by a block of the kernel so far
    bool is_new_ = false;

    void find_used(bool in_whole);
};

void poison_stack(char* end);

}  // namespace dp::cuda_emulator
