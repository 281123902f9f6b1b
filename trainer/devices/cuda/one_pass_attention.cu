// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of CudaDevice's attention in bf16 on tensor cores, in one pass over the scores: five products of each tile,
// where the two kernels of tensor_attention.cu make seven. attention_passes.hpp decides between them.
//
// A block has a whole head. It takes 128 keys at a time, 32 for each warp, and goes through the queries that see them, 64 at a
// time. The gradients of these keys and values stay in registers. Those of the queries are sums over all keys: the block keeps
// them in f32 in a room of its own in memory, adds to them in the order of the keys, and rounds them once. Each of these numbers
// is one thread's, so the bits are the same each time, whatever the number of blocks, and nobody waits for another block. A warp
// reads a tile from shared memory once for its 32 keys, which is half of what 16 keys a warp take. Every second group of keys has
// its queries from the last to the first: what was used last is still in the GPU's cache. The queries' score gradients go through
// shared memory, as each warp has those of other keys.
#include <new>

#include "trainer/devices/attention_passes.hpp"
#include "trainer/devices/cuda/attention_scores.cuh"
#include "trainer/devices/cuda/attention_tiles.cuh"
#include "trainer/devices/cuda/launched_memory.cuh"
#include "trainer/devices/cuda/launching.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

template <int kSize>
struct OnePass {
    static constexpr int kKeys = kOnePassKeys, kTile = kOnePassQueries;
    static constexpr int kRows = kKeys / 16 / kWarps;  // times 16 keys of a warp
    static constexpr int kChunk = 16;                  // queries whose scores a warp has at a time
    static constexpr int kStride = Sizes<kSize>::kStride, kSteps = kSize / 16, kSums = kSize / 8;
    static constexpr int kSlopeStride = kTile + 8;
    static constexpr int kStage = 2 * kTile * kStride;  // queries, followed by their gradients
    static_assert(kWarps * 32 == kOnePassThreads && kTile == 16 * kWarps && kStride <= kSlopeStride);
};

// Of the query that eight lanes share: Σ dy y.
__device__ float product_of(const Vectors<const Bf16>& y, const Vectors<const Bf16>& dy, int row) {
    const int column = static_cast<int>(threadIdx.x % 8) * 8;
    float sum = 0;
    if (row < y.count && column < y.size) {
        const Bf16 *one = y.first + row * y.apart + column, *other = dy.first + row * dy.apart + column;
        if (y.packs) {
            const auto a = read_pack<8>(one), b = read_pack<8>(other);
            for (int i = 0; i < 8; ++i) sum += a.at[i] * b.at[i];
        } else {
            for (int i = 0; i < 8 && column + i < y.size; ++i) sum += read(one[i]) * read(other[i]);
        }
    }
    for (int apart = 4; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, apart);
    return sum;
}

// Writes a left factor to shared memory.
template <int kStride>
__device__ void put(const LeftPiece& piece, Bf16* matrix) {
    Bf16* place = matrix + SumPiece::row(0) * kStride + SumPiece::column(0);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        *reinterpret_cast<unsigned*>(place + i % 2 * 8 * kStride + i / 2 * 8) = piece.at[i];
}

// room: one_pass_room() bytes for each block, the gradients first.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kOnePassThreads, 2)
    one_pass_kernel(Attention a, std::int64_t columns, bool packs, std::int64_t heads, const Bf16* qkv,
                    const Bf16* y, const float* sums, const Bf16* dy, std::int64_t room_bytes,
                    unsigned char* room, Bf16* d_qkv) {
    using S = OnePass<kSize>;
    Bf16* const keys = launched_memory<Bf16>();
    Bf16* const stages = keys + S::kKeys * S::kStride;
    Bf16* const slopes_of_tile = stages + 2 * S::kStage;  // [keys, queries]; before that, the values
    auto* const tile_facts = reinterpret_cast<QueryFacts*>(slopes_of_tile + S::kKeys * S::kSlopeStride);
    // In registers it would be in the way of the sums.
    auto* const head_memory = reinterpret_cast<Head*>(tile_facts + 2 * S::kTile);
    static_assert(sizeof(Head) <= kOnePassHead);
    const Head& head = *head_memory;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    auto* const d_queries = reinterpret_cast<float4*>(room + blockIdx.x * room_bytes);
    const int sequence = static_cast<int>(a.sequence);
    const int tiles = (sequence + S::kTile - 1) / S::kTile;
    auto* const facts =
        reinterpret_cast<QueryFacts*>(d_queries + std::int64_t{tiles} * S::kTile * (kSize / 4));

    for (std::int64_t item = blockIdx.x; item < heads; item += gridDim.x) {
        __syncthreads();  // nobody reads the last one any more
        if (threadIdx.x == 0) new (head_memory) Head(a, columns, a.sequence, static_cast<unsigned>(item));
        __syncthreads();
        const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
        for (std::int64_t first = warp * 4; first < a.sequence; first += 4 * kWarps) {
            const float product =
                product_of(in_y(head, y, first, packs), in_y(head, dy, first, packs), lane / 8);
            const std::int64_t query = first + lane / 8;
            if (lane % 8 == 0 && query < a.sequence)
                facts[query] = {sums[head.sums + query] * kLog2OfE, product, head.start(query)};
        }

        for (int first_key = 0; first_key < sequence; first_key += S::kKeys) {
            const int own = first_key + warp * 16 * S::kRows;
            // The tiles whose queries see one of these keys: documents begin in ascending order.
            int count = static_cast<int>(tiles - first_key / S::kTile);
            while (head.start(first_key + (count - 1) * S::kTile) >= first_key + S::kKeys) --count;
            const bool is_reversed = first_key / S::kKeys % 2 != 0;
            const auto tile = [&](int i) { return first_key + (is_reversed ? count - 1 - i : i) * S::kTile; };
            const auto copy = [&](int first, int stage) {
                Bf16* to = stages + stage * S::kStage;
                copy_tile<S::kTile, kSize>(to, in_qkv(head, qkv, 0, first, packs));
                copy_tile<S::kTile, kSize>(to + S::kStage / 2, in_y(head, dy, first, packs));
                const auto i = static_cast<int>(threadIdx.x);
                if (i >= S::kTile) return;
                const bool exists = first + i < sequence;
                copy_later<sizeof(QueryFacts)>(tile_facts + stage * S::kTile + i,
                                               facts + (exists ? first + i : 0), exists);
            };
            __syncthreads();  // all facts are there, and nobody reads the last keys any more
            copy_tile<S::kKeys, kSize>(keys, in_qkv(head, qkv, 1, first_key, packs));
            copy_tile<S::kKeys, kSize>(slopes_of_tile, in_qkv(head, qkv, 2, first_key, packs));
            copy(tile(0), 0);
            wait_for_copies();
            __syncthreads();
            LeftPiece own_keys[S::kRows][S::kSteps], own_values[S::kRows][S::kSteps];
#pragma unroll
            for (int row = 0; row < S::kRows; ++row) {
#pragma unroll
                for (int step = 0; step < S::kSteps; ++step) {
                    const int place = (warp * S::kRows + row) * 16 * S::kStride + step * 16;
                    own_keys[row][step] = left_piece<S::kStride>(keys + place);
                    own_values[row][step] = left_piece<S::kStride>(slopes_of_tile + place);
                }
            }

            SumPiece d_keys[S::kRows][S::kSums], d_values[S::kRows][S::kSums];
            for (int i = 0; i < count; ++i) {
                const int first = tile(i);
                const Bf16 *queries = stages + i % 2 * S::kStage, *gradients = queries + S::kStage / 2;
                wait_for_copies();
                __syncthreads();  // all have this tile, and nobody reads the last one and its slopes any more
                if (i + 1 < count) copy(tile(i + 1), (i + 1) % 2);
                // Else no query of the tile sees a key of this warp's.
                const int chunks = own < first + S::kTile ? S::kTile / S::kChunk : 0;
#pragma unroll 1
                for (int chunk = 0; chunk < chunks; ++chunk) {
                    const int begin = chunk * S::kChunk;
                    SumPiece weights[S::kRows][S::kChunk / 8], slopes[S::kRows][S::kChunk / 8];
                    multiply_rows<true, S::kStride, S::kRows>(weights, own_keys,
                                                              queries + begin * S::kStride);
                    multiply_rows<true, S::kStride, S::kRows>(slopes, own_values,
                                                              gradients + begin * S::kStride);
                    LeftPiece factors[S::kRows][S::kChunk / 16];
                    unsigned kept[S::kRows];
#pragma unroll
                    for (int row = 0; row < S::kRows; ++row) {
                        hide_later_keys<false>(weights[row], own + row * 16, first + begin);
                        kept[row] = kDrops ? kept_scores<S::kChunk / 8, false>(head.dropout, own + row * 16,
                                                                               first + begin)
                                           : 0;
                    }
#pragma unroll
                    for (int piece = 0; piece < S::kChunk / 8; ++piece) {
#pragma unroll
                        for (int odd = 0; odd < 2; ++odd) {
                            const QueryFacts query =
                                tile_facts[i % 2 * S::kTile + begin + piece * 8 + SumPiece::column(odd)];
#pragma unroll
                            for (int row = 0; row < S::kRows; ++row) {
#pragma unroll
                                for (int at = odd; at < 4; at += 2) {
                                    float &weight = weights[row][piece].at[at],
                                          &slope = slopes[row][piece].at[at];
                                    const bool is_kept_here = !kDrops || is_kept(kept[row], piece, at);
                                    if (kDrops) slope = is_kept_here ? slope * factor : 0.0f;
                                    weight = power_of_two(weight * (scale * kLog2OfE) - query.log_sum);
                                    if (own + row * 16 + SumPiece::row(at) < query.start) weight = 0;
                                    slope = weight * (slope - query.product);
                                    if (!is_kept_here) weight = 0;
                                }
                            }
                        }
                    }
#pragma unroll
                    for (int row = 0; row < S::kRows; ++row) as_left(factors[row], weights[row]);
                    multiply_rows<false, S::kStride, S::kRows>(d_values, factors,
                                                               gradients + begin * S::kStride);
#pragma unroll
                    for (int row = 0; row < S::kRows; ++row) {
                        as_left(factors[row], slopes[row]);
                        put<S::kSlopeStride>(
                            factors[row][0],
                            slopes_of_tile + (warp * S::kRows + row) * 16 * S::kSlopeStride + begin);
                    }
                    multiply_rows<false, S::kStride, S::kRows>(d_keys, factors, queries + begin * S::kStride);
                }

                // A warp's 16 queries of the tile.
                SumPiece changes[S::kSums];
                float4* const place = d_queries + (first / S::kTile * kWarps + warp) * 32 * S::kSums + lane;
                if (head.start(first) < first_key) {
#pragma unroll
                    for (int sum = 0; sum < S::kSums; ++sum) {
                        const float4 so_far = place[sum * 32];
                        auto& at = changes[sum].at;
                        at[0] = so_far.x, at[1] = so_far.y, at[2] = so_far.z, at[3] = so_far.w;
                    }
                }
                __syncthreads();  // all slopes are there
#pragma unroll 4
                for (int key = 0; key < S::kKeys && first_key + key < first + S::kTile; key += 16) {
                    const LeftPiece left[1] = {left_from_columns<S::kSlopeStride>(
                        slopes_of_tile + key * S::kSlopeStride + warp * 16)};
                    multiply<false, S::kStride>(changes, left, keys + key * S::kStride);
                }
                if (first < first_key + S::kKeys) {  // no later keys are seen
                    store(changes, scale, scale, in_qkv(head, d_qkv, 0, first + warp * 16, packs));
                } else {
#pragma unroll
                    for (int sum = 0; sum < S::kSums; ++sum) {
                        const auto& at = changes[sum].at;
                        place[sum * 32] = make_float4(at[0], at[1], at[2], at[3]);
                    }
                }
            }
#pragma unroll
            for (int row = 0; row < S::kRows; ++row) {
                store(d_keys[row], scale, scale, in_qkv(head, d_qkv, 1, own + row * 16, packs));
                store(d_values[row], factor, factor, in_qkv(head, d_qkv, 2, own + row * 16, packs));
            }
        }
    }
}

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::attention_bf16_backward_in_one_pass(const Attention& a, In qkv, In y, In sums, In dy,
                                                     Out d_qkv) {
    const BackwardShape shape = backward_shape(a, y);
    const bool packs =
        vectors_in_packs(a, y, {qkv.data<Bf16>(), y.data<Bf16>(), dy.data<Bf16>(), d_qkv.data<Bf16>()});
    const std::int64_t bytes = one_pass_room(shape), blocks = one_pass_blocks(shape);
    auto* room = workspace<unsigned char>(blocks * bytes);
    with_head_size(a, y, [&](auto padded, auto drops) {
        constexpr int size = std::min<int>(padded, kLargestOnePassHead);  // no larger ones are asked for
        launch_with(static_cast<std::size_t>(one_pass_shared(size)), "the gradient of attention",
                    one_pass_kernel<size, drops>, dim3(static_cast<unsigned>(blocks)), kOnePassThreads, a,
                    y.columns(), packs, shape.heads, qkv, y, sums, dy, bytes, room, d_qkv);
    });
}

}  // namespace dp::trainer
