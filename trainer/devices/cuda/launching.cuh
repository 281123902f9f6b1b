// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files of kernels: the number of blocks, the items of a thread, and sums over a warp or a
// block in a fixed order.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "trainer/devices/cuda/cuda_device.hpp"
#include "trainer/devices/cuda/most_blocks.cuh"

namespace dp::trainer::kernels {

inline constexpr int kThreads = 256;

inline unsigned blocks_for(std::int64_t items) {
    return static_cast<unsigned>(std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

__device__ inline std::int64_t first_item() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t stride() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// The result is in the first lane.
__device__ inline double warp_sum(double value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xFFFFFFFFu, value, offset);
    return value;
}

// The result is in every lane.
__device__ inline float warp_sum_all(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    return value;
}
__device__ inline float warp_max_all(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    return value;
}

// The result is in every thread of a block of kBlock. All threads call.
template <int kBlock = kThreads>
__device__ double block_sum(double value) {
    __shared__ double warps[kBlock / 32];
    value = warp_sum(value);
    __syncthreads();  // the last call's may still be read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    double total = 0;
    for (double warp : warps) total += warp;
    return total;
}

}  // namespace dp::trainer::kernels
