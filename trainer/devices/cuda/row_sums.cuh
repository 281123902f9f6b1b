// SPDX-License-Identifier: Apache-2.0
//
// Column sums of a matrix: gradients of biases and of layer norm's parameters. The rows are split into parts,
// so that the whole GPU works even with few columns, and the parts are added up afterwards. The split depends
// only on the number of rows, so the sums are always the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"

namespace dp::trainer::kernels {

// A block of 32 x 8 threads sums one part of 32 x kWidth columns: a lane reads kWidth neighbours; the eight
// warps divide the rows and then add up their sums.
inline constexpr int kSumLanes = 32, kSumWarps = 8;

// term.add<kWidth>(row, column, sums) adds to Term::kSums sums of kWidth columns. `packs` of them in a row.
// parts [kSums, gridDim.y, columns].
template <int kWidth, typename Term>
__global__ void sum_parts_of_rows_kernel(Term term, std::int64_t rows, std::int64_t packs,
                                         std::int64_t rows_a_part, float* parts) {
    __shared__ Numbers<kWidth> shared[kSumWarps][kSumLanes];
    const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
    const std::int64_t first = blockIdx.y * rows_a_part, end = min(first + rows_a_part, rows);
    Numbers<kWidth> sums[Term::kSums] = {};
    if (pack < packs) {
#pragma unroll 4
        for (std::int64_t row = first + threadIdx.y; row < end; row += kSumWarps)
            term.template add<kWidth>(row, pack * kWidth, sums);
    }
    for (int sum = 0; sum < Term::kSums; ++sum) {
        __syncthreads();  // the last sum's may still be read
        shared[threadIdx.y][threadIdx.x] = sums[sum];
        __syncthreads();
        if (threadIdx.y != 0 || pack >= packs) continue;
        float* to =
            parts + ((static_cast<std::int64_t>(sum) * gridDim.y + blockIdx.y) * packs + pack) * kWidth;
        for (int i = 0; i < kWidth; ++i) {
            float total = 0;
            for (int warp = 0; warp < kSumWarps; ++warp) total += shared[warp][threadIdx.x].at[i];
            to[i] = total;
        }
    }
}

// A block of 32 x 8 threads adds up the parts of 32 columns, divided among its warps. A template only so that
// several files may have it.
template <typename Sum>
__global__ void add_parts_of_rows_kernel(const float* parts, int count, std::int64_t columns, bool adds,
                                         Sum* sum) {
    __shared__ float shared[kSumWarps][kSumLanes];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumLanes + threadIdx.x;
    float own = 0;
    if (column < columns) {
#pragma unroll 4
        for (int part = static_cast<int>(threadIdx.y); part < count; part += kSumWarps)
            own += parts[part * columns + column];
    }
    shared[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    float total = 0;
    for (int warp = 0; warp < kSumWarps; ++warp) total += shared[warp][threadIdx.x];
    sum[column] = adds ? sum[column] + total : total;
}

// kWidth: what rows of that many columns and the addresses that the term reads allow (with_width()).
template <int kWidth, typename Term>
void sum_rows_of(CudaDevice& device, const char* what, Term term, std::int64_t rows, std::int64_t columns,
                 Write write, std::array<float*, Term::kSums> sums) {
    constexpr std::int64_t kRowsAPart = 64, kMostParts = 128;
    const std::int64_t rows_a_part = std::max(kRowsAPart, (rows + kMostParts - 1) / kMostParts);
    const std::int64_t count = std::max<std::int64_t>(1, (rows + rows_a_part - 1) / rows_a_part);
    const std::int64_t packs = columns / kWidth;
    auto* parts = device.workspace<float>(Term::kSums * count * columns);
    if (parts == nullptr) return;
    const auto blocks = [](std::int64_t items) {
        return static_cast<unsigned>((items + kSumLanes - 1) / kSumLanes);
    };
    device.launch(what, sum_parts_of_rows_kernel<kWidth, Term>,
                  dim3(blocks(packs), static_cast<unsigned>(count)), dim3(kSumLanes, kSumWarps), term, rows,
                  packs, rows_a_part, parts);
    for (std::size_t i = 0; i < sums.size(); ++i)
        device.launch(what, add_parts_of_rows_kernel<float>, blocks(columns), dim3(kSumLanes, kSumWarps),
                      parts + static_cast<std::int64_t>(i) * count * columns, static_cast<int>(count),
                      columns, write == Write::add, sums[i]);
}

}  // namespace dp::trainer::kernels
