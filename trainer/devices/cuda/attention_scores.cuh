// SPDX-License-Identifier: Apache-2.0
//
// What the attention kernels on tensor cores do to a warp's scores: which keys a query does not see, and which weights dropout
// keeps. Exponentials are powers of two of scores in units of log(2).
#pragma once

#include "trainer/devices/cuda/attention_head.cuh"
#include "trainer/devices/cuda/tensor_core.cuh"

namespace dp::trainer::kernels {

inline constexpr float kLog2OfE = 1.4426950409f;

// What the gradients of keys and values need of a query: the logarithm of its sum of exponentials, in units of log(2), Σ dy y, and
// the first key that it sees.
struct alignas(16) QueryFacts {
    float log_sum, product;
    int start;
};

// Masks a warp's scores, whose rows are 16 queries and columns keys, or the reverse: keys after their query
// get no weight. Only tiles on the diagonal need it.
template <bool kRowsAreQueries, int kScores>
__device__ void hide_later_keys(SumPiece (&scores)[kScores], std::int64_t first_row,
                                std::int64_t first_column) {
    const int apart = static_cast<int>(first_row - first_column);
    if (kRowsAreQueries ? 8 * kScores - 1 <= apart : apart + 15 <= 0) return;
#pragma unroll
    for (int piece = 0; piece < kScores; ++piece) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = apart + SumPiece::row(i), column = piece * 8 + SumPiece::column(i);
            if (kRowsAreQueries ? column > row : column < row) scores[piece].at[i] = -INFINITY;
        }
    }
}

// The same of keys before the first one that their query sees, where documents begin within sequences. The rows are queries;
// `starts`: of this lane's two.
template <int kScores>
__device__ void hide_earlier_keys(SumPiece (&scores)[kScores], const int (&starts)[2], std::int64_t first) {
    const int apart[2] = {starts[0] - static_cast<int>(first), starts[1] - static_cast<int>(first)};
    if (max(apart[0], apart[1]) <= 0) return;
#pragma unroll
    for (int piece = 0; piece < kScores; ++piece) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (piece * 8 + SumPiece::column(i) < apart[i / 2]) scores[piece].at[i] = -INFINITY;
    }
}

// Bit 4 piece + i says whether dropout keeps number i of that piece of a warp's scores, whose rows are 16
// queries and columns keys, or the reverse.
template <int kScores, bool kRowsAreQueries>
__device__ unsigned kept_scores(const AttentionDropout& dropout, std::int64_t first_row,
                                std::int64_t first_column) {
    static_assert(4 * kScores <= 32);
    const std::int64_t row = first_row + SumPiece::row(0);
    unsigned kept = 0;
#pragma unroll
    for (int piece = 0; piece < kScores; piece += 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::int64_t column = first_column + piece * 8 + SumPiece::column(i);
            const std::uint64_t four =
                kRowsAreQueries ? dropout.four(row, column) : dropout.four(column, row);
#pragma unroll
            for (int number = 0; number < 4; ++number) {
                const int row_after = kRowsAreQueries ? number / 2 : number % 2;
                const int column_after = kRowsAreQueries ? number % 2 : number / 2;
                const int bit = 4 * (piece + column_after) + 2 * row_after + i;
                kept |= static_cast<unsigned>(dropout.is_kept(four, number)) << bit;
            }
        }
    }
    return kept;
}
__device__ inline bool is_kept(unsigned kept, int piece, int i) {
    return (kept >> (4 * piece + i) & 1) != 0;
}

}  // namespace dp::trainer::kernels
