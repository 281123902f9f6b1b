// SPDX-License-Identifier: Apache-2.0
//
// Sums over the rows of a matrix, a column each: gradients of biases and of layer norm's parameters. The rows
// are cut into parts, so that the whole GPU takes part where there are few columns, and the parts are added
// up afterwards. How they are cut depends on the number of rows alone: the sums are always the same.
#ifndef TRAINER_DEVICES_CUDA_ROW_SUMS_CUH
#define TRAINER_DEVICES_CUDA_ROW_SUMS_CUH

#include <algorithm>
#include <array>
#include <cstdint>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// A block of 32 x 8 threads sums 32 columns of one part: a warp reads 32 neighbours, its eight warps share
// the rows, then the first warp adds what they have.
inline constexpr int kSumColumns = 32, kSumWarps = 8;

// term(row, column, sums) adds to Term::kSums sums at once. parts [kSums, gridDim.y, columns].
template <typename Term>
__global__ void sum_parts_of_rows_kernel(Term term, std::int64_t rows, std::int64_t columns,
                                         std::int64_t rows_a_part, float* parts) {
    __shared__ float shared[Term::kSums][kSumWarps][kSumColumns];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
    const std::int64_t first = blockIdx.y * rows_a_part, end = min(first + rows_a_part, rows);
    float sums[Term::kSums] = {};
    if (column < columns)
        for (std::int64_t row = first + threadIdx.y; row < end; row += kSumWarps) term(row, column, sums);
    for (int sum = 0; sum < Term::kSums; ++sum) shared[sum][threadIdx.y][threadIdx.x] = sums[sum];
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    for (int sum = 0; sum < Term::kSums; ++sum) {
        float total = 0;
        for (int warp = 0; warp < kSumWarps; ++warp) total += shared[sum][warp][threadIdx.x];
        parts[(static_cast<std::int64_t>(sum) * gridDim.y + blockIdx.y) * columns + column] = total;
    }
}

// A template only so that several files may have it.
template <typename Sum>
__global__ void add_parts_of_rows_kernel(const float* parts, int count, std::int64_t columns, bool adds,
                                         Sum* sum) {
    for (std::int64_t column = first_item(); column < columns; column += stride()) {
        float total = 0;
        for (int part = 0; part < count; ++part) total += parts[part * columns + column];
        sum[column] = adds ? sum[column] + total : total;
    }
}

template <typename Term>
void sum_rows_of(Term term, std::int64_t rows, std::int64_t columns, Write write,
                 std::array<float*, Term::kSums> sums, Workspace& workspace, cudaStream_t stream) {
    constexpr std::int64_t kRowsAPart = 64, kMostParts = 64;
    const std::int64_t rows_a_part = std::max(kRowsAPart, (rows + kMostParts - 1) / kMostParts);
    const std::int64_t count = std::max<std::int64_t>(1, (rows + rows_a_part - 1) / rows_a_part);
    auto* parts = workspace.take<float>(Term::kSums * count * columns);
    if (parts == nullptr) return;
    const dim3 blocks(static_cast<unsigned>((columns + kSumColumns - 1) / kSumColumns),
                      static_cast<unsigned>(count));
    launch(sum_parts_of_rows_kernel<Term>, blocks, dim3(kSumColumns, kSumWarps), stream, term, rows, columns,
           rows_a_part, parts);
    for (std::size_t i = 0; i < sums.size(); ++i)
        launch(add_parts_of_rows_kernel<float>, blocks_for(columns), kThreads, stream,
               parts + static_cast<std::int64_t>(i) * count * columns, static_cast<int>(count), columns,
               write == Write::add, sums[i]);
}

}  // namespace dp::trainer::kernels

#endif
