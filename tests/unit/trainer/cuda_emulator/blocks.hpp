// SPDX-License-Identifier: Apache-2.0
//
// A GPU's threads on the host: a kernel's blocks run one after the other, the threads of a block in turns,
// each on a stack of its own, until they wait for one another. device_code.hpp gives the kernels CUDA's names
// for this.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <optional>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace dp::cuda_emulator {

// The order in which runnable threads and blocks run: by number, backward, or shuffled. A kernel whose
// threads read what others wrote without a barrier between is right in at most one of them.
struct Order {
    bool backward = false;
    std::optional<std::uint64_t> seed;
};
// DP_CUDA_EMULATOR_ORDER (forward, backward, or a seed) says it at first; without it, forward.
void set_order(Order order);

// One caller at a time. What CUDA's limits forbid is not run, and is answered as CUDA answers it.
cudaError_t run(dim3 blocks, dim3 threads, const std::function<void()>& kernel);

// For cudaGetLastError(), where it is a failure.
void note(cudaError_t result);

// ---- by a thread of a running kernel; what the CUDA C++ Programming Guide leaves undefined ends the program

// Waits for all threads of the block that have not returned, and tells whether any of them says so.
bool wait_for_block(bool says);

constexpr int kWords = 6;
struct Lanes {
    std::uint64_t of[32][kWords];
};
int lane();
// Waits until all lanes of the warp have given their words. Good until this thread's next but one exchange.
const Lanes& exchange(const std::uint64_t (&words)[kWords]);

}  // namespace dp::cuda_emulator
