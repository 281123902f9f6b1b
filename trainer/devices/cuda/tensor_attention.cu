// SPDX-License-Identifier: Apache-2.0
//
// Attention in bf16 on tensor cores: see attention.hpp. A block works on 64 queries of one head (or, for the
// gradients of keys and values, 64 keys), each of its four warps on 16 of them; the others' vectors come
// through shared memory, a tile at a time. The scores of a tile stay in registers, and nothing is kept of
// them but their sums (Dao et al. 2022; without it the scores of a long sequence would be most of a step's
// memory traffic). No two blocks write the same place, so the bits are the same each time.
//
// Scores, their exponentials' sums and all results are added up in float; the weights and the gradients of
// scores are rounded to bf16 where they are factors. Exponentials are powers of two of scores in units of
// log(2).
#include "trainer/devices/attention_dropout.hpp"
#include "trainer/devices/cuda/attention.hpp"
#include "trainer/devices/cuda/attention_head.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/tensor_core.cuh"

namespace dp::trainer::kernels {
namespace {

constexpr int kWarps = 4, kThreadsOfBlock = 32 * kWarps;
constexpr int kOwn = 16 * kWarps;  // queries or keys of a block
constexpr float kLog2OfE = 1.4426950409f, kLogOf2 = 0.6931471806f;

// Of a head of up to kSize numbers, a multiple of 32. The rest are zeros, which change no product.
template <int kSize>
struct Sizes {
    static constexpr int kStride = kSize + 8;  // rows apart such that ldmatrix meets no bank twice
    static constexpr int kSteps = kSize / 16;  // pieces of a vector as a factor
    static constexpr int kSums = kSize / 8;    // pieces of a vector as a sum
    // The others' vectors at a time: as many as registers have room for.
    static constexpr int kTile = kSize <= 64 ? 64 : 32;
};

// By all threads: the vectors of kRows tokens from `first` on; zeros beyond the sequence and beyond the head.
// packs: whether every vector lies at a multiple of 16 bytes and fills such.
template <int kRows, int kSize, typename Place>
__device__ void load(Bf16* tile, const Bf16* from, const Head& head, std::int64_t first, bool packs,
                     Place place) {
    constexpr int kPacks = kSize / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kThreadsOfBlock) {
        const int row = i / kPacks, column = i % kPacks * 8;
        const Bf16* vector = first + row < head.sequence ? from + place(first + row) : nullptr;
        Pack<Bf16, 8> pack;
        if (packs && vector != nullptr && column < head.size) {
            pack = *reinterpret_cast<const Pack<Bf16, 8>*>(vector + column);
        } else {
            for (int j = 0; j < 8; ++j)
                pack.at[j] =
                    vector != nullptr && column + j < head.size ? vector[column + j] : __float2bfloat16_rn(0);
        }
        *reinterpret_cast<Pack<Bf16, 8>*>(tile + row * Sizes<kSize>::kStride + column) = pack;
    }
}

// The sum, or the largest, over the four lanes that share a row, in each of them.
__device__ float row_sum(float value) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
    return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}
__device__ float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

// A warp's 16 vectors as left factors, from the rows of a tile.
template <int kSize>
__device__ void own_vectors(LeftPiece (&pieces)[Sizes<kSize>::kSteps], const Bf16* tile, int warp) {
    constexpr int kStride = Sizes<kSize>::kStride;
#pragma unroll
    for (int step = 0; step < Sizes<kSize>::kSteps; ++step)
        pieces[step] = left_piece<kStride>(tile + warp * 16 * kStride + step * 16);
}

// Bit 4 piece + i: whether dropout keeps number i of that piece of a warp's scores, whose rows are 16 queries
// and columns keys, or the other way around.
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

// A warp's 16 results times `factors` of their rows (of this lane's first and second row), where they exist.
template <int kSums, typename Place>
__device__ void store(const SumPiece (&results)[kSums], float first_factor, float second_factor,
                      const Head& head, std::int64_t first, Bf16* to, Place place) {
#pragma unroll
    for (int sum = 0; sum < kSums; ++sum) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::int64_t token = first + SumPiece::row(i);
            const int column = sum * 8 + SumPiece::column(i);
            if (token < head.sequence && column < head.size)
                write(to[place(token) + column], results[sum].at[i] * (i < 2 ? first_factor : second_factor));
        }
    }
}

template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock)
    tensor_attention_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, Bf16* y,
                            float* sums) {
    using S = Sizes<kSize>;
    constexpr int kScores = S::kTile / 8;
    // The block's queries, on their way to registers; then keys, and values behind them.
    __shared__ __align__(16) Bf16 shared[2 * S::kTile * S::kStride];
    static_assert(2 * S::kTile >= kOwn);
    Bf16 *keys = shared, *values = shared + S::kTile * S::kStride;
    const Head head(a, columns, blockIdx.x);
    const AttentionDropout dropout(a, blockIdx.x);
    const float factor = kDrops ? dropout.factor() : 1.0f;
    const int warp = static_cast<int>(threadIdx.x / 32);
    // Those with most keys first.
    const std::int64_t first_query = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * kOwn;
    const std::int64_t own = first_query + warp * 16;
    const float scale = rsqrtf(static_cast<float>(head.size)) * kLog2OfE;

    load<kOwn, kSize>(shared, qkv, head, first_query, packs,
                      [&](std::int64_t token) { return head.in_qkv(token, 0); });
    __syncthreads();
    LeftPiece queries[S::kSteps];
    own_vectors<kSize>(queries, shared, warp);

    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // of this lane's rows; the sums of its columns
    SumPiece results[S::kSums];
    const std::int64_t end = min(first_query + kOwn, a.sequence);
    for (std::int64_t first = 0; first < end; first += S::kTile) {
        __syncthreads();
        load<S::kTile, kSize>(keys, qkv, head, first, packs,
                              [&](std::int64_t token) { return head.in_qkv(token, 1); });
        load<S::kTile, kSize>(values, qkv, head, first, packs,
                              [&](std::int64_t token) { return head.in_qkv(token, 2); });
        __syncthreads();
        SumPiece scores[kScores];
        multiply_by_rows<S::kStride>(scores, queries, keys);
        float now[2] = {largest[0], largest[1]};
#pragma unroll
        for (int piece = 0; piece < kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const std::int64_t key = first + piece * 8 + SumPiece::column(i);
                float& score = scores[piece].at[i];
                score = key <= own + SumPiece::row(i) ? score * scale : -INFINITY;
                now[i / 2] = fmaxf(now[i / 2], score);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            now[half] = row_max(now[half]);  // finite from the first tile on: every query sees key 0
            const float correction = exp2f(largest[half] - now[half]);
            largest[half] = now[half];
            sum[half] *= correction;
#pragma unroll
            for (auto& result : results) {
                result.at[2 * half] *= correction;
                result.at[2 * half + 1] *= correction;
            }
        }
        const unsigned kept = kDrops ? kept_scores<kScores, true>(dropout, own, first) : 0;
#pragma unroll
        for (int piece = 0; piece < kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& score = scores[piece].at[i];
                score = exp2f(score - largest[i / 2]);
                sum[i / 2] += score;
                if (kDrops && !is_kept(kept, piece, i)) score = 0;
            }
        }
        LeftPiece weights[kScores / 2];
        as_left(weights, scores);
        multiply<S::kStride>(results, weights, values);
    }
    for (float& part : sum) part = row_sum(part);
    store(results, factor / sum[0], factor / sum[1], head, own, y,
          [&](std::int64_t token) { return head.in_y(token); });
    for (int half = 0; half < 2; ++half) {
        const std::int64_t query = own + SumPiece::row(2 * half);
        if (SumPiece::column(0) == 0 && query < a.sequence)
            sums[head.sums + query] = largest[half] * kLogOf2 + logf(sum[half]);
    }
}

// The gradients of the queries, and Σ dy y of each for the keys' kernel, in `products`, laid out as sums is.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock)
    tensor_queries_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, const Bf16* y,
                          const float* sums, const Bf16* dy, float* products, Bf16* d_qkv) {
    using S = Sizes<kSize>;
    constexpr int kScores = S::kTile / 8;
    __shared__ __align__(16) Bf16 shared[2 * S::kTile * S::kStride];
    Bf16 *keys = shared, *values = shared + S::kTile * S::kStride;
    const Head head(a, columns, blockIdx.x);
    const AttentionDropout dropout(a, blockIdx.x);
    const float factor = kDrops ? dropout.factor() : 1.0f;
    const int warp = static_cast<int>(threadIdx.x / 32);
    const std::int64_t first_query = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * kOwn;
    const std::int64_t own = first_query + warp * 16;
    const float scale = rsqrtf(static_cast<float>(head.size));

    LeftPiece queries[S::kSteps], gradients[S::kSteps];
    load<kOwn, kSize>(shared, qkv, head, first_query, packs,
                      [&](std::int64_t token) { return head.in_qkv(token, 0); });
    __syncthreads();
    own_vectors<kSize>(queries, shared, warp);
    __syncthreads();
    load<kOwn, kSize>(shared, dy, head, first_query, packs,
                      [&](std::int64_t token) { return head.in_y(token); });
    __syncthreads();
    own_vectors<kSize>(gradients, shared, warp);

    float product[2] = {}, log_sum[2] = {};  // of this lane's rows
    for (int half = 0; half < 2; ++half) {
        const std::int64_t query = own + SumPiece::row(2 * half);
        if (query < a.sequence) {
            for (int i = SumPiece::column(0) / 2; i < head.size; i += 4)
                product[half] += read(dy[head.in_y(query) + i]) * read(y[head.in_y(query) + i]);
            log_sum[half] = sums[head.sums + query] * kLog2OfE;
        }
        product[half] = row_sum(product[half]);
        if (query < a.sequence && SumPiece::column(0) == 0) products[head.sums + query] = product[half];
    }

    SumPiece results[S::kSums];
    const std::int64_t end = min(first_query + kOwn, a.sequence);
    for (std::int64_t first = 0; first < end; first += S::kTile) {
        __syncthreads();
        load<S::kTile, kSize>(keys, qkv, head, first, packs,
                              [&](std::int64_t token) { return head.in_qkv(token, 1); });
        load<S::kTile, kSize>(values, qkv, head, first, packs,
                              [&](std::int64_t token) { return head.in_qkv(token, 2); });
        __syncthreads();
        SumPiece scores[kScores], slopes[kScores];
        multiply_by_rows<S::kStride>(scores, queries, keys);
        multiply_by_rows<S::kStride>(slopes, gradients, values);
        const unsigned kept = kDrops ? kept_scores<kScores, true>(dropout, own, first) : 0;
#pragma unroll
        for (int piece = 0; piece < kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bool seen = first + piece * 8 + SumPiece::column(i) <= own + SumPiece::row(i);
                const float weight =
                    seen ? exp2f(scores[piece].at[i] * (scale * kLog2OfE) - log_sum[i / 2]) : 0.0f;
                float& slope = slopes[piece].at[i];
                if (kDrops) slope = is_kept(kept, piece, i) ? slope * factor : 0.0f;
                slope = weight * (slope - product[i / 2]);
            }
        }
        LeftPiece factors[kScores / 2];
        as_left(factors, slopes);
        multiply<S::kStride>(results, factors, keys);
    }
    store(results, scale, scale, head, own, d_qkv, [&](std::int64_t token) { return head.in_qkv(token, 0); });
}

// The gradients of the keys and values: all as above with queries and keys exchanged.
template <int kSize, bool kDrops>
__global__ void __launch_bounds__(kThreadsOfBlock)
    tensor_keys_kernel(Attention a, std::int64_t columns, bool packs, const Bf16* qkv, const float* sums,
                       const Bf16* dy, const float* products, Bf16* d_qkv) {
    using S = Sizes<kSize>;
    constexpr int kScores = S::kTile / 8;
    __shared__ __align__(16) Bf16 shared[2 * S::kTile * S::kStride];
    __shared__ float tile_sums[S::kTile], tile_products[S::kTile];
    Bf16 *queries = shared, *gradients = shared + S::kTile * S::kStride;
    const Head head(a, columns, blockIdx.x);
    const AttentionDropout dropout(a, blockIdx.x);
    const float factor = kDrops ? dropout.factor() : 1.0f;
    const int warp = static_cast<int>(threadIdx.x / 32);
    const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.y) * kOwn;
    const std::int64_t own = first_key + warp * 16;
    const float scale = rsqrtf(static_cast<float>(head.size));

    LeftPiece keys[S::kSteps], values[S::kSteps];
    load<kOwn, kSize>(shared, qkv, head, first_key, packs,
                      [&](std::int64_t token) { return head.in_qkv(token, 1); });
    __syncthreads();
    own_vectors<kSize>(keys, shared, warp);
    __syncthreads();
    load<kOwn, kSize>(shared, qkv, head, first_key, packs,
                      [&](std::int64_t token) { return head.in_qkv(token, 2); });
    __syncthreads();
    own_vectors<kSize>(values, shared, warp);

    SumPiece d_keys[S::kSums], d_values[S::kSums];
    for (std::int64_t first = first_key; first < a.sequence; first += S::kTile) {
        __syncthreads();
        load<S::kTile, kSize>(queries, qkv, head, first, packs,
                              [&](std::int64_t token) { return head.in_qkv(token, 0); });
        load<S::kTile, kSize>(gradients, dy, head, first, packs,
                              [&](std::int64_t token) { return head.in_y(token); });
        for (int i = static_cast<int>(threadIdx.x); i < S::kTile; i += kThreadsOfBlock) {
            const bool exists = first + i < a.sequence;
            tile_sums[i] = exists ? sums[head.sums + first + i] * kLog2OfE : 0.0f;
            tile_products[i] = exists ? products[head.sums + first + i] : 0.0f;
        }
        __syncthreads();
        SumPiece weights[kScores], slopes[kScores];  // [keys, queries]
        multiply_by_rows<S::kStride>(weights, keys, queries);
        multiply_by_rows<S::kStride>(slopes, values, gradients);
        const unsigned kept = kDrops ? kept_scores<kScores, false>(dropout, own, first) : 0;
#pragma unroll
        for (int piece = 0; piece < kScores; ++piece) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = piece * 8 + SumPiece::column(i);
                const std::int64_t query = first + column;
                const bool seen = own + SumPiece::row(i) <= query && query < a.sequence;
                float &weight = weights[piece].at[i], &slope = slopes[piece].at[i];
                if (kDrops) slope = is_kept(kept, piece, i) ? slope * factor : 0.0f;
                weight = seen ? exp2f(weight * (scale * kLog2OfE) - tile_sums[column]) : 0.0f;
                slope = weight * (slope - tile_products[column]);
                if (kDrops && !is_kept(kept, piece, i)) weight = 0;
            }
        }
        LeftPiece factors[kScores / 2];
        as_left(factors, weights);
        multiply<S::kStride>(d_values, factors, gradients);
        as_left(factors, slopes);
        multiply<S::kStride>(d_keys, factors, queries);
    }
    store(d_keys, scale, scale, head, own, d_qkv, [&](std::int64_t token) { return head.in_qkv(token, 1); });
    store(d_values, factor, factor, head, own, d_qkv,
          [&](std::int64_t token) { return head.in_qkv(token, 2); });
}

// Calls queue with the size that the kernels take a head for, and whether there is dropout, as constants.
template <typename Queue>
void with_size(const Attention& a, std::int64_t columns, Queue queue) {
    const auto with = [&](auto size) {
        a.dropout.rate > 0 ? queue(size, std::true_type{}) : queue(size, std::false_type{});
    };
    const std::int64_t size = columns / a.heads;
    if (size <= 32) {
        with(std::integral_constant<int, 32>{});
    } else if (size <= 64) {
        with(std::integral_constant<int, 64>{});
    } else if (size <= 96) {
        with(std::integral_constant<int, 96>{});
    } else {
        with(std::integral_constant<int, 128>{});
    }
}

// A block for each head of each sequence and each kOwn of its tokens.
dim3 blocks_of(const Attention& a, const Tensor& y) {
    return {static_cast<unsigned>(y.rows() / a.sequence * a.heads),
            static_cast<unsigned>((a.sequence + kOwn - 1) / kOwn)};
}

// Whether vectors of heads, of y's rows, begin at multiples of 16 bytes and fill such.
bool vectors_in_packs(const Attention& a, const Tensor& y, std::initializer_list<const void*> places) {
    return y.columns() / a.heads % 8 == 0 && in_packs(places);
}

}  // namespace

void tensor_attention(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                      cudaStream_t stream) {
    const bool packs = vectors_in_packs(a, y, {qkv.data<Bf16>()});
    with_size(a, y.columns(), [&](auto size, auto drops) {
        launch(tensor_attention_kernel<size, drops>, blocks_of(a, y), kThreadsOfBlock, stream, a, y.columns(),
               packs, qkv.data<Bf16>(), y.data<Bf16>(), sums.data<float>());
    });
}

void tensor_attention_backward(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                               const Tensor& dy, const Tensor& d_qkv, Workspace& workspace,
                               cudaStream_t stream) {
    auto* products = workspace.take<float>(y.rows() * a.heads);
    if (products == nullptr) return;
    const bool packs = vectors_in_packs(a, y, {qkv.data<Bf16>(), dy.data<Bf16>()});
    with_size(a, y.columns(), [&](auto size, auto drops) {
        launch(tensor_queries_kernel<size, drops>, blocks_of(a, y), kThreadsOfBlock, stream, a, y.columns(),
               packs, qkv.data<Bf16>(), y.data<Bf16>(), sums.data<float>(), dy.data<Bf16>(), products,
               d_qkv.data<Bf16>());
        launch(tensor_keys_kernel<size, drops>, blocks_of(a, y), kThreadsOfBlock, stream, a, y.columns(),
               packs, qkv.data<Bf16>(), sums.data<float>(), dy.data<Bf16>(), products, d_qkv.data<Bf16>());
    });
}

}  // namespace dp::trainer::kernels
