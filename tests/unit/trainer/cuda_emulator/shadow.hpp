// SPDX-License-Identifier: Apache-2.0
//
// A shadow of the memory of the emulated GPU: for each four bytes, who wrote and who read them last. Kernels that are compiled with
// -fsanitize=thread,alignment,bounds (the module in lib/emulated_cuda_checked) call it at each access. It ends the program, with
// one line, at an access
// - that no barrier orders with another thread's to the same bytes, one of them a write; lanes of a warp are also ordered by what
//   they exchange, blocks of a kernel by fences and atomics of both (releases.hpp). Atomics are in order with one another;
// - to shared memory that no thread of the block has written;
// - beyond a shared variable, an array in it, an allocation, or what was handed out of it, or to memory of the host;
// - to an address that is not a multiple of what is read or written at once.
// Of accesses of different sizes to the same four bytes it knows the last: it may miss a race, but finds none that is not there.
#pragma once

#include <cstddef>

#include "shared_memory.hpp"

namespace dp::cuda_emulator {

// ---- by blocks.cpp

// The stacks of all threads: accesses of code that runs on others are the host's, and not looked at.
void watch_stacks(const char* first, std::size_t size);
void watch_kernel(const SharedMemory& memory);
// Which of the blocks that are there at once goes on: its shared memory is its own.
void watch_block(unsigned number);

// ---- by runtime.cpp: memory of `bytes` in pages of its own

void watch_allocation(const void* place, std::size_t bytes, const void* pages, std::size_t mapped);
void forget_allocation(const void* place);
// Until the next one of the memory that begins at `place`, nothing of that may be accessed but this.
void watch_part(const void* place, const void* part, std::size_t bytes);

// ---- by atomics, which the compiler does not see

void watch_atomic(const void* place, std::size_t bytes, const void* code);
void watch_fence();

}  // namespace dp::cuda_emulator
