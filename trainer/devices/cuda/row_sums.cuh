// SPDX-License-Identifier: Apache-2.0
//
// Column sums of a matrix: gradients of biases, and the second half of those of layer norm's parameters. The rows
// are split into parts (row_parts.hpp), so that the whole GPU works even with few columns, and the parts are added
// up afterwards, always in the same order.
#pragma once

#include <cstdint>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/row_parts.hpp"

namespace dp::trainer::kernels {

// A block of 32 x 8 threads sums one part of 32 x kWidth columns: a lane reads kWidth neighbours; the eight
// warps divide the rows and then add up their sums.
inline constexpr int kSumLanes = 32, kSumWarps = 8;

// `packs` of kWidth numbers in a row, which is `length` numbers long in memory. parts [gridDim.y, columns].
template <int kWidth, typename T>
__global__ void sum_parts_of_rows_kernel(const T* in, std::int64_t length, std::int64_t rows,
                                         std::int64_t packs, std::int64_t rows_a_part, float* parts) {
    __shared__ Numbers<kWidth> shared[kSumWarps][kSumLanes];
    const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
    const std::int64_t first = blockIdx.y * rows_a_part, end = min(first + rows_a_part, rows);
    Numbers<kWidth> sums = {};
    if (pack < packs) {
#pragma unroll 4
        for (std::int64_t row = first + threadIdx.y; row < end; row += kSumWarps) {
            const auto numbers = read_pack<kWidth>(in + row * length + pack * kWidth);
            for (int i = 0; i < kWidth; ++i) sums.at[i] += numbers.at[i];
        }
    }
    shared[threadIdx.y][threadIdx.x] = sums;
    __syncthreads();
    if (threadIdx.y != 0 || pack >= packs) return;
    for (int i = 0; i < kWidth; ++i) {
        float total = 0;
        for (int warp = 0; warp < kSumWarps; ++warp) total += shared[warp][threadIdx.x].at[i];
        parts[(blockIdx.y * packs + pack) * kWidth + i] = total;
    }
}

// A block of 32 x kAddWarps threads adds up the parts of 32 columns, divided among its warps: so many that a thread
// waits for memory a few times only. parts [gridDim.y, count, columns], of one sum or two. A template only so that
// several files may have it.
inline constexpr int kAddWarps = 32;
template <typename Sum>
__global__ void __launch_bounds__(kSumLanes* kAddWarps)
    add_parts_of_rows_kernel(const float* parts, int count, std::int64_t columns, bool adds, Sum* sum,
                             Sum* second) {
    __shared__ float shared[kAddWarps][kSumLanes];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
    const float* own_parts = parts + static_cast<std::int64_t>(blockIdx.y) * count * columns;
    float own = 0;
    if (column < columns) {
#pragma unroll 8
        for (int part = static_cast<int>(threadIdx.y); part < count; part += kAddWarps)
            own += own_parts[part * columns + column];
    }
    shared[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    float total = 0;
    for (int warp = 0; warp < kAddWarps; ++warp) total += shared[warp][threadIdx.x];
    Sum& to = (blockIdx.y == 0 ? sum : second)[column];
    to = adds ? to + total : total;
}

inline unsigned blocks_of_lanes(std::int64_t items) {
    return static_cast<unsigned>((items + kSumLanes - 1) / kSumLanes);
}

// parts [1 or 2, count, columns]; `second` is null where there is one.
inline void add_parts_of_rows(CudaDevice& device, const char* what, const float* parts, std::int64_t count,
                              std::int64_t columns, Write write, float* sum, float* second = nullptr) {
    device.launch(what, add_parts_of_rows_kernel<float>,
                  dim3(blocks_of_lanes(columns), second == nullptr ? 1 : 2), dim3(kSumLanes, kAddWarps),
                  parts, static_cast<int>(count), columns, write == Write::add, sum, second);
}

}  // namespace dp::trainer::kernels
