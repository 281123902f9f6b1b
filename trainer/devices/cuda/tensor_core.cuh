// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 matrices on a warp's tensor cores, accumulated in float: which numbers are where in the
// instructions of tensor_instructions.cuh. tensor_attention.cu is built from these.
//
// A warp holds a matrix in pieces. Of a sum, 16 x 8 floats, a lane has four: rows lane / 4 and lane / 4 + 8,
// columns lane % 4 * 2 and the next. Of a left factor, 16 x 16, it has four pairs of neighbours: the places
// that it has of a sum's, then the same 8 columns further on.
#pragma once

#include <cuda_bf16.h>

#include <cstring>

#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/tensor_instructions.cuh"

namespace dp::trainer::kernels {

struct SumPiece {
    float at[4] = {};

    // The place of this lane's number i in the 16 x 8.
    __device__ static int row(int i) { return static_cast<int>(threadIdx.x % 32 / 4) + i / 2 * 8; }
    __device__ static int column(int i) { return static_cast<int>(threadIdx.x % 4) * 2 + i % 2; }
};
struct LeftPiece {
    unsigned at[4];
};
// Of the right factor, 16 x 8, two pieces side by side.
struct RightPieces {
    unsigned at[4];
};

// Of the numbers of two pairs, added up.
__device__ inline float product_of_pairs(unsigned one, unsigned other) {
    // bf16 is the upper half of a float.
    const auto low = [](unsigned pair) { return __uint_as_float(pair << 16); };
    const auto high = [](unsigned pair) { return __uint_as_float(pair & 0xFFFF0000u); };
    return low(one) * low(other) + high(one) * high(other);
}

// ---- with matrices in shared memory, kStride numbers from row to row

// Loads the 16 x 16 left factor that begins at `matrix`.
template <int kStride>
__device__ LeftPiece left_piece(const __nv_bfloat16* matrix) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    LeftPiece piece;
    load_matrices(piece.at, matrix + lane % 16 * kStride + lane / 16 * 8);
    return piece;
}

// Loads the 16 x 16 left factor whose columns are the 16 rows that begin at `matrix`.
template <int kStride>
__device__ LeftPiece left_from_columns(const __nv_bfloat16* matrix) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    LeftPiece piece;
    load_matrices_transposed(piece.at, matrix + (lane / 16 * 8 + lane % 8) * kStride + lane % 16 / 8 * 8);
    return piece;
}

// Loads the right factor whose columns are the 16 rows that begin at `matrix`.
template <int kStride>
__device__ RightPieces right_from_rows(const __nv_bfloat16* matrix) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    RightPieces pieces;
    load_matrices(pieces.at, matrix + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8);
    return pieces;
}

// Loads the right factor, 16 x 16, that begins at `matrix`.
template <int kStride>
__device__ RightPieces right_from_columns(const __nv_bfloat16* matrix) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    RightPieces pieces;
    load_matrices_transposed(pieces.at, matrix + lane % 16 * kStride + lane / 16 * 8);
    return pieces;
}

// sums += left op(right): left [16 kRows, 16 kSteps], op(right) [16 kSteps, 8 kSums], which is right or its
// transpose, and sums [16 kRows, 8 kSums]. All rows use a piece of the right factor that is loaded once.
template <bool kTransposed, int kStride, int kRows, int kSums, int kSteps>
__device__ void multiply_rows(SumPiece (*sums)[kSums], const LeftPiece (*left)[kSteps],
                              const __nv_bfloat16* right) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int sum = 0; sum < kSums; sum += 2) {
            const auto pieces = kTransposed
                                    ? right_from_rows<kStride>(right + sum * 8 * kStride + step * 16)
                                    : right_from_columns<kStride>(right + step * 16 * kStride + sum * 8);
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                multiply_add_16x8x16(sums[row][sum].at, left[row][step].at, pieces.at[0], pieces.at[1]);
                multiply_add_16x8x16(sums[row][sum + 1].at, left[row][step].at, pieces.at[2], pieces.at[3]);
            }
        }
    }
}
// Of 16 rows.
template <bool kTransposed, int kStride, int kSums, int kSteps>
__device__ void multiply(SumPiece (&sums)[kSums], const LeftPiece (&left)[kSteps],
                         const __nv_bfloat16* right) {
    multiply_rows<kTransposed, kStride, 1>(&sums, &left, right);
}

// Of two left factors, the products of the numbers that this lane has of its first row (half 0) or second.
template <int kSteps>
__device__ float dot_of_row(const LeftPiece (&one)[kSteps], const LeftPiece (&other)[kSteps], int half) {
    float sum = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
        sum += product_of_pairs(one[step].at[half], other[step].at[half]) +
               product_of_pairs(one[step].at[half + 2], other[step].at[half + 2]);
    return sum;
}

// Sums [16, 8 kSums], rounded, as a left factor [16, 16 kSums / 2].
template <int kSums>
__device__ void as_left(LeftPiece (&left)[kSums / 2], const SumPiece (&sums)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i) {
        const auto &first = sums[2 * i].at, &second = sums[2 * i + 1].at;
        left[i] = {{pair_of(first[0], first[1]), pair_of(first[2], first[3]), pair_of(second[0], second[1]),
                    pair_of(second[2], second[3])}};
    }
}

}  // namespace dp::trainer::kernels
