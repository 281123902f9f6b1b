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
#include "trainer/devices/attention_passes.hpp"
#include "trainer/devices/cuda/attention_scores.cuh"
#include "trainer/devices/cuda/attention_tiles.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/tensor_core.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

constexpr float kLogOf2 = 0.6931471806f;

// The sum, or the maximum, over the four lanes that share a row; each lane gets the result.
__device__ float row_sum(float value) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
    return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}
__device__ float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock, Sizes<kSize>::kBlocks)
    tensor_attention_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, Bf16* y,
                            float* sums) {
    using S = Sizes<kSize>;
    __shared__ __align__(16) Bf16 shared[2][S::kStage];  // keys, followed by values
    const Head head(a, columns, kOwn);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale() * kLog2OfE;
    const int warp = static_cast<int>(threadIdx.x / 32);
    // Blocks with the most keys come first.
    const std::int64_t first_query = std::int64_t{head.parts - 1 - head.part} * kOwn;
    const std::int64_t own = first_query + warp * 16;

    const auto copy = [&](std::int64_t first, int stage) {
        copy_tile<S::kTile, kSize>(shared[stage], in_qkv(head, qkv, 1, first, packs));
        copy_tile<S::kTile, kSize>(shared[stage] + S::kStage / 2, in_qkv(head, qkv, 2, first, packs));
    };
    const int starts[2] = {head.start(own + SumPiece::row(0)), head.start(own + SumPiece::row(2))};
    const std::int64_t begin = head.start(first_query) / S::kTile * S::kTile;
    copy(begin, 0);
    LeftPiece queries[S::kSteps];
    own_vectors<kSize>(queries, in_qkv(head, qkv, 0, first_query, packs), shared[1]);

    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // of this lane's rows; the sums of its columns
    SumPiece results[S::kSums];
    const std::int64_t end = min(first_query + kOwn, a.sequence);
    for_each_tile<S::kTile>(begin, end, copy, [&](std::int64_t first, int stage) {
        const Bf16 *keys = shared[stage], *values = keys + S::kStage / 2;
        SumPiece scores[S::kScores];
        multiply<true, S::kStride>(scores, queries, keys);
        hide_later_keys<true>(scores, own, first);
        hide_earlier_keys(scores, starts, first);
        float now[2] = {largest[0], largest[1]}, peak[2];
#pragma unroll
        for (const auto& piece : scores) {
#pragma unroll
            for (int i = 0; i < 4; ++i) now[i / 2] = fmaxf(now[i / 2], piece.at[i]);
        }
#pragma unroll
        for (int own_row = 0; own_row < 2; ++own_row) {
            now[own_row] = row_max(now[own_row]);
            // Without documents every query sees key 0 in the first tile; else there may be none until now.
            const float base = now[own_row] == -INFINITY ? 0.0f : now[own_row];
            const float correction = power_of_two((largest[own_row] - base) * scale);
            largest[own_row] = now[own_row];
            peak[own_row] = base * scale;
            sum[own_row] *= correction;
#pragma unroll
            for (auto& result : results) {
                result.at[2 * own_row] *= correction;
                result.at[2 * own_row + 1] *= correction;
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
    });
    for (float& part : sum) part = row_sum(part);
    store(results, factor / sum[0], factor / sum[1], in_y(head, y, own, packs));
    for (int own_row = 0; own_row < 2; ++own_row) {
        const std::int64_t query = own + SumPiece::row(2 * own_row);
        if (SumPiece::column(0) == 0 && query < a.sequence)
            sums[head.sums + query] = largest[own_row] * scale * kLogOf2 + logf(sum[own_row]);
    }
}

// The gradients of the queries, and `facts`, laid out as sums is.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock, Sizes<kSize>::kBlocks)
    tensor_queries_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, const Bf16* y,
                          const float* sums, const Bf16* dy, QueryFacts* facts, Bf16* d_qkv) {
    using S = Sizes<kSize>;
    __shared__ __align__(16) Bf16 shared[2][S::kStage];  // keys, followed by values
    const Head head(a, columns, kOwn);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32);
    const std::int64_t first_query = std::int64_t{head.parts - 1 - head.part} * kOwn;
    const std::int64_t own = first_query + warp * 16;

    const auto copy = [&](std::int64_t first, int stage) {
        copy_tile<S::kTile, kSize>(shared[stage], in_qkv(head, qkv, 1, first, packs));
        copy_tile<S::kTile, kSize>(shared[stage] + S::kStage / 2, in_qkv(head, qkv, 2, first, packs));
    };
    const int starts[2] = {head.start(own + SumPiece::row(0)), head.start(own + SumPiece::row(2))};
    const std::int64_t begin = head.start(first_query) / S::kTile * S::kTile;
    copy(begin, 0);
    LeftPiece queries[S::kSteps], gradients[S::kSteps];
    own_vectors<kSize>(queries, in_qkv(head, qkv, 0, first_query, packs), shared[1]);
    own_vectors<kSize>(gradients, in_y(head, dy, first_query, packs), shared[1]);
    LeftPiece outputs[S::kSteps];
    own_vectors<kSize>(outputs, in_y(head, y, first_query, packs), shared[1]);

    float product[2] = {}, log_sum[2] = {};  // of this lane's rows
#pragma unroll
    for (int own_row = 0; own_row < 2; ++own_row) {
        const std::int64_t query = own + SumPiece::row(2 * own_row);
        product[own_row] = row_sum(dot_of_row(gradients, outputs, own_row));
        if (query >= a.sequence) continue;
        log_sum[own_row] = sums[head.sums + query] * kLog2OfE;
        if (SumPiece::column(0) == 0)
            facts[head.sums + query] = {log_sum[own_row], product[own_row], starts[own_row]};
    }

    SumPiece results[S::kSums];
    const std::int64_t end = min(first_query + kOwn, a.sequence);
    for_each_tile<S::kTile>(begin, end, copy, [&](std::int64_t first, int stage) {
        const Bf16 *keys = shared[stage], *values = keys + S::kStage / 2;
        SumPiece scores[S::kScores], slopes[S::kScores];
        multiply<true, S::kStride>(scores, queries, keys);
        hide_later_keys<true>(scores, own, first);
        hide_earlier_keys(scores, starts, first);
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
    });
    store(results, scale, scale, in_qkv(head, d_qkv, 0, own, packs));
}

// The gradients of the keys and values: all as above with queries and keys exchanged.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock)
    tensor_keys_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, const Bf16* dy,
                       const QueryFacts* facts, Bf16* d_qkv) {
    using S = Sizes<kSize>;
    __shared__ __align__(16) Bf16 shared[2][S::kStage];  // queries, followed by their gradients
    __shared__ QueryFacts tile_facts[2][S::kTile];
    const Head head(a, columns, kOwn);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32);
    const std::int64_t first_key = std::int64_t{head.part} * kOwn;
    const std::int64_t own = first_key + warp * 16;
    const int own_keys[2] = {static_cast<int>(own) + SumPiece::row(0),
                             static_cast<int>(own) + SumPiece::row(2)};

    const auto copy = [&](std::int64_t first, int stage) {
        copy_tile<S::kTile, kSize>(shared[stage], in_qkv(head, qkv, 0, first, packs));
        copy_tile<S::kTile, kSize>(shared[stage] + S::kStage / 2, in_y(head, dy, first, packs));
        static_assert(S::kTile <= kThreadsOfBlock);
        const auto i = static_cast<int>(threadIdx.x);
        if (i >= S::kTile) return;
        const bool exists = first + i < a.sequence;
        copy_later<sizeof(QueryFacts)>(&tile_facts[stage][i], facts + head.sums + (exists ? first + i : 0),
                                       exists);
    };
    copy(first_key, 0);
    LeftPiece keys[S::kSteps], values[S::kSteps];
    own_vectors<kSize>(keys, in_qkv(head, qkv, 1, first_key, packs), shared[1]);
    own_vectors<kSize>(values, in_qkv(head, qkv, 2, first_key, packs), shared[1]);

    SumPiece d_keys[S::kSums], d_values[S::kSums];
    for_each_tile<S::kTile>(first_key, a.sequence, copy, [&](std::int64_t first, int stage) {
        const Bf16 *queries = shared[stage], *gradients = queries + S::kStage / 2;
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
                const QueryFacts& query = tile_facts[stage][column];
                weight = power_of_two(weight * (scale * kLog2OfE) - query.log_sum);
                if (own_keys[i / 2] < query.start) weight = 0;
                slope = weight * (slope - query.product);
                if (kDrops && !is_kept(kept, piece, i)) weight = 0;
            }
        }
        LeftPiece factors[S::kScores / 2];
        as_left(factors, weights);
        multiply<false, S::kStride>(d_values, factors, gradients);
        as_left(factors, slopes);
        multiply<false, S::kStride>(d_keys, factors, queries);
    });
    store(d_keys, scale, scale, in_qkv(head, d_qkv, 1, own, packs));
    store(d_values, factor, factor, in_qkv(head, d_qkv, 2, own, packs));
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
    if (takes_one_pass(backward_shape(a, y)))
        return attention_bf16_backward_in_one_pass(a, qkv, y, sums, dy, d_qkv);
    constexpr const char* kWhat = "the gradient of attention";
    auto* facts = workspace<QueryFacts>(y.rows() * a.heads);
    const bool packs =
        vectors_in_packs(a, y, {qkv.data<Bf16>(), y.data<Bf16>(), dy.data<Bf16>(), d_qkv.data<Bf16>()});
    with_head_size(a, y, [&](auto size, auto drops) {
        launch(kWhat, tensor_queries_kernel<size, drops>, blocks_of(a, y, kOwn), kThreadsOfBlock, a,
               y.columns(), packs, qkv, y, sums, dy, facts, d_qkv);
        launch(kWhat, tensor_keys_kernel<size, drops>, blocks_of(a, y, kOwn), kThreadsOfBlock, a, y.columns(),
               packs, qkv, dy, facts, d_qkv);
    });
}

}  // namespace dp::trainer
