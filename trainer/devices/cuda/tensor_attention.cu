// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's attention in bf16 on tensor cores, with its kernels. A block handles 64 queries of one head
// (or, for the gradients of keys and values, 64 keys), each of its four warps 16 of them; the others' vectors
// come through shared memory, a tile at a time. A tile's scores stay in registers, and only their sums are kept
// (Dao et al. 2022; otherwise the scores of a long sequence would be most of a step's memory traffic). No two
// blocks write to the same address, so the bits are the same each time.
//
// Scores, sums of exponentials and results accumulate in float; weights and score gradients are rounded to
// bf16 where they are factors. Exponentials are powers of two of scores in units of log(2).
#include "trainer/devices/cuda/attention_tiles.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/tensor_core.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

constexpr float kLog2OfE = 1.4426950409f, kLogOf2 = 0.6931471806f;

// The sum, or the maximum, over the four lanes that share a row; each lane gets the result.
__device__ float row_sum(float value) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
    return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}
__device__ float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

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
__device__ bool is_kept(unsigned kept, int piece, int i) {
    return (kept >> (4 * piece + i) & 1) != 0;
}

template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock, Sizes<kSize>::kBlocks)
    tensor_attention_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, Bf16* y,
                            float* sums) {
    using S = Sizes<kSize>;
    // The block's queries, on their way to registers; then keys, followed by values.
    __shared__ __align__(16) Bf16 shared[2 * S::kTile * S::kStride];
    static_assert(2 * S::kTile >= kOwn);
    Bf16 *keys = shared, *values = shared + S::kTile * S::kStride;
    const Head head(a, columns);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale() * kLog2OfE;
    const int warp = static_cast<int>(threadIdx.x / 32);
    // Blocks with the most keys come first.
    const std::int64_t first_query = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * kOwn;
    const std::int64_t own = first_query + warp * 16;

    LeftPiece queries[S::kSteps];
    own_vectors<kSize>(queries, in_qkv(head, qkv, 0, first_query, packs), shared);

    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // of this lane's rows; the sums of its columns
    SumPiece results[S::kSums];
    const std::int64_t end = min(first_query + kOwn, a.sequence);
    for (std::int64_t first = 0; first < end; first += S::kTile) {
        next_tiles<S::kTile, kSize>(keys, in_qkv(head, qkv, 1, first, packs), values,
                                    in_qkv(head, qkv, 2, first, packs));
        __syncthreads();
        SumPiece scores[S::kScores];
        multiply<true, S::kStride>(scores, queries, keys);
        hide_later_keys<true>(scores, own, first);
        float now[2] = {largest[0], largest[1]}, peak[2];
#pragma unroll
        for (const auto& piece : scores) {
#pragma unroll
            for (int i = 0; i < 4; ++i) now[i / 2] = fmaxf(now[i / 2], piece.at[i]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            now[half] = row_max(now[half]);  // finite from the first tile on: every query sees key 0
            const float correction = power_of_two((largest[half] - now[half]) * scale);
            largest[half] = now[half];
            peak[half] = now[half] * scale;
            sum[half] *= correction;
#pragma unroll
            for (auto& result : results) {
                result.at[2 * half] *= correction;
                result.at[2 * half + 1] *= correction;
            }
        }
        const unsigned kept = kDrops ? kept_scores<S::kScores, true>(head.dropout, own, first) : 0;
#pragma unroll
        for (int piece = 0; piece < S::kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& score = scores[piece].at[i];
                score = power_of_two(score * scale - peak[i / 2]);
                sum[i / 2] += score;
                if (kDrops && !is_kept(kept, piece, i)) score = 0;
            }
        }
        LeftPiece weights[S::kScores / 2];
        as_left(weights, scores);
        multiply<false, S::kStride>(results, weights, values);
    }
    for (float& part : sum) part = row_sum(part);
    store(results, factor / sum[0], factor / sum[1], in_y(head, y, own, packs));
    for (int half = 0; half < 2; ++half) {
        const std::int64_t query = own + SumPiece::row(2 * half);
        if (SumPiece::column(0) == 0 && query < a.sequence)
            sums[head.sums + query] = largest[half] * scale * kLogOf2 + logf(sum[half]);
    }
}

// The gradients of the queries, and Σ dy y of each for the keys' kernel, in `products`, laid out as sums is.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock, Sizes<kSize>::kBlocks)
    tensor_queries_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, const Bf16* y,
                          const float* sums, const Bf16* dy, float* products, Bf16* d_qkv) {
    using S = Sizes<kSize>;
    __shared__ __align__(16) Bf16 shared[2 * S::kTile * S::kStride];
    Bf16 *keys = shared, *values = shared + S::kTile * S::kStride;
    const Head head(a, columns);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32);
    const std::int64_t first_query = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * kOwn;
    const std::int64_t own = first_query + warp * 16;

    LeftPiece queries[S::kSteps], gradients[S::kSteps];
    own_vectors<kSize>(queries, in_qkv(head, qkv, 0, first_query, packs), shared);
    own_vectors<kSize>(gradients, in_y(head, dy, first_query, packs), shared);
    LeftPiece outputs[S::kSteps];
    own_vectors<kSize>(outputs, in_y(head, y, first_query, packs), shared);

    float product[2] = {}, log_sum[2] = {};  // of this lane's rows
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const std::int64_t query = own + SumPiece::row(2 * half);
        product[half] = row_sum(dot_of_row(gradients, outputs, half));
        if (query >= a.sequence) continue;
        log_sum[half] = sums[head.sums + query] * kLog2OfE;
        if (SumPiece::column(0) == 0) products[head.sums + query] = product[half];
    }

    SumPiece results[S::kSums];
    const std::int64_t end = min(first_query + kOwn, a.sequence);
    for (std::int64_t first = 0; first < end; first += S::kTile) {
        next_tiles<S::kTile, kSize>(keys, in_qkv(head, qkv, 1, first, packs), values,
                                    in_qkv(head, qkv, 2, first, packs));
        __syncthreads();
        SumPiece scores[S::kScores], slopes[S::kScores];
        multiply<true, S::kStride>(scores, queries, keys);
        hide_later_keys<true>(scores, own, first);
        multiply<true, S::kStride>(slopes, gradients, values);
        const unsigned kept = kDrops ? kept_scores<S::kScores, true>(head.dropout, own, first) : 0;
#pragma unroll
        for (int piece = 0; piece < S::kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float weight = power_of_two(scores[piece].at[i] * (scale * kLog2OfE) - log_sum[i / 2]);
                float& slope = slopes[piece].at[i];
                if (kDrops) slope = is_kept(kept, piece, i) ? slope * factor : 0.0f;
                slope = weight * (slope - product[i / 2]);
            }
        }
        LeftPiece factors[S::kScores / 2];
        as_left(factors, slopes);
        multiply<false, S::kStride>(results, factors, keys);
    }
    store(results, scale, scale, in_qkv(head, d_qkv, 0, own, packs));
}

// The gradients of the keys and values: all as above with queries and keys exchanged.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock)
    tensor_keys_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, const float* sums,
                       const Bf16* dy, const float* products, Bf16* d_qkv) {
    using S = Sizes<kSize>;
    __shared__ __align__(16) Bf16 shared[2 * S::kTile * S::kStride];
    __shared__ float tile_sums[S::kTile], tile_products[S::kTile];
    Bf16 *queries = shared, *gradients = shared + S::kTile * S::kStride;
    const Head head(a, columns);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32);
    const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.y) * kOwn;
    const std::int64_t own = first_key + warp * 16;

    LeftPiece keys[S::kSteps], values[S::kSteps];
    own_vectors<kSize>(keys, in_qkv(head, qkv, 1, first_key, packs), shared);
    own_vectors<kSize>(values, in_qkv(head, qkv, 2, first_key, packs), shared);

    SumPiece d_keys[S::kSums], d_values[S::kSums];
    for (std::int64_t first = first_key; first < a.sequence; first += S::kTile) {
        next_tiles<S::kTile, kSize>(queries, in_qkv(head, qkv, 0, first, packs), gradients,
                                    in_y(head, dy, first, packs));
        for (int i = static_cast<int>(threadIdx.x); i < S::kTile; i += kThreadsOfBlock) {
            const bool exists = first + i < a.sequence;
            tile_sums[i] = exists ? sums[head.sums + first + i] * kLog2OfE : 0.0f;
            tile_products[i] = exists ? products[head.sums + first + i] : 0.0f;
        }
        __syncthreads();
        SumPiece weights[S::kScores], slopes[S::kScores];  // [keys, queries]
        multiply<true, S::kStride>(weights, keys, queries);
        hide_later_keys<false>(weights, own, first);
        multiply<true, S::kStride>(slopes, values, gradients);
        const unsigned kept = kDrops ? kept_scores<S::kScores, false>(head.dropout, own, first) : 0;
#pragma unroll
        for (int piece = 0; piece < S::kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = piece * 8 + SumPiece::column(i);
                float &weight = weights[piece].at[i], &slope = slopes[piece].at[i];
                if (kDrops) slope = is_kept(kept, piece, i) ? slope * factor : 0.0f;
                weight = power_of_two(weight * (scale * kLog2OfE) - tile_sums[column]);
                slope = weight * (slope - tile_products[column]);
                if (kDrops && !is_kept(kept, piece, i)) weight = 0;
            }
        }
        LeftPiece factors[S::kScores / 2];
        as_left(factors, weights);
        multiply<false, S::kStride>(d_values, factors, gradients);
        as_left(factors, slopes);
        multiply<false, S::kStride>(d_keys, factors, queries);
    }
    store(d_keys, scale, scale, in_qkv(head, d_qkv, 1, own, packs));
    store(d_values, factor, factor, in_qkv(head, d_qkv, 2, own, packs));
}

// Whether the heads' vectors in y's rows are aligned to 16 bytes and a multiple of them.
bool vectors_in_packs(const Attention& a, const Tensor& y, std::initializer_list<const void*> places) {
    return y.columns() / a.heads % 8 == 0 && in_packs(places);
}

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::attention_bf16(const Attention& a, In qkv, Out y, Out sums) {
    const bool packs = vectors_in_packs(a, y, {qkv.data<Bf16>(), y.data<Bf16>()});
    with_head_size(a, y, [&](auto size, auto drops) {
        launch("attention", tensor_attention_kernel<size, drops>, blocks_of(a, y, kOwn), kThreadsOfBlock, a,
               y.columns(), packs, qkv, y, sums);
    });
}

void CudaDevice::attention_bf16_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) {
    constexpr const char* kWhat = "the gradient of attention";
    auto* products = workspace<float>(y.rows() * a.heads);
    const bool packs =
        vectors_in_packs(a, y, {qkv.data<Bf16>(), y.data<Bf16>(), dy.data<Bf16>(), d_qkv.data<Bf16>()});
    with_head_size(a, y, [&](auto size, auto drops) {
        launch(kWhat, tensor_queries_kernel<size, drops>, blocks_of(a, y, kOwn), kThreadsOfBlock, a,
               y.columns(), packs, qkv, y, sums, dy, products, d_qkv);
        launch(kWhat, tensor_keys_kernel<size, drops>, blocks_of(a, y, kOwn), kThreadsOfBlock, a, y.columns(),
               packs, qkv, sums, dy, products, d_qkv);
    });
}

}  // namespace dp::trainer
