// SPDX-License-Identifier: Apache-2.0
//
// Attention in f32: see attention.hpp. A warp handles one query (or, for the gradients of keys and values,
// one key), a block eight of one head. The others' vectors come through shared memory, 32 at a time; a lane
// computes the score against one of them and holds every 32nd number of the result. Only the sums of the
// scores are kept (Dao et al. 2022).
#include "trainer/devices/attention_dropout.hpp"
#include "trainer/devices/cuda/attention.hpp"
#include "trainer/devices/cuda/attention_head.cuh"
#include "trainer/devices/cuda/launching.cuh"

namespace dp::trainer::kernels {
namespace {

constexpr int kWarps = 8, kTile = 32;

// 32 vectors with a stride of one more than their length: lanes that read the same element of each
// hit different banks.
template <int kParts>
struct Tile {
    float numbers[kTile][32 * kParts + 1];
};

// All threads load the vectors of tokens first .. first + 31; zeros beyond the sequence.
template <int kParts, typename Place>
__device__ void load(Tile<kParts>& tile, const float* from, const Head& head, std::int64_t first,
                     Place place) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * 32 * kParts; i += kWarps * 32) {
        const int row = i / (32 * kParts), column = i % (32 * kParts);
        const bool exists = first + row < head.sequence && column < head.size;
        tile.numbers[row][column] = exists ? from[place(first + row) + column] : 0.0f;
    }
}

template <int kParts>
__device__ float dot(const float* own, const Tile<kParts>& tile, int row, int size) {
    float sum = 0;
    for (int i = 0; i < size; ++i) sum += own[i] * tile.numbers[row][i];
    return sum;
}

template <int kParts, bool kDrops>
__global__ void attention_kernel(Attention a, std::int64_t columns, const float* qkv, float* y, float* sums) {
    __shared__ Tile<kParts> keys, values;
    __shared__ float queries[kWarps][32 * kParts];
    const Head head(a, columns, blockIdx.x);
    const AttentionDropout dropout(a, blockIdx.x);
    const float factor = kDrops ? dropout.factor() : 1.0f;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.y) * kWarps,
                       query = first_query + warp;
    const bool exists = query < a.sequence;
    const float scale = rsqrtf(static_cast<float>(head.size));
    for (int i = lane; i < head.size; i += 32)
        queries[warp][i] = exists ? qkv[head.in_qkv(query, 0) + i] * scale : 0.0f;

    float largest = -INFINITY, sum = 0, result[kParts] = {};
    const std::int64_t last_query = min(first_query + kWarps, a.sequence) - 1;
    for (std::int64_t first = 0; first <= last_query; first += kTile) {
        __syncthreads();
        load(keys, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 1); });
        load(values, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 2); });
        __syncthreads();
        if (!exists || first > query) continue;
        const bool seen = first + lane <= query;
        const float score = seen ? dot(queries[warp], keys, lane, head.size) : -INFINITY;
        const float now = fmaxf(largest, warp_max_all(score));
        const float correction = expf(largest - now), p = seen ? expf(score - now) : 0.0f;
        sum = sum * correction + warp_sum_all(p);
        largest = now;
        for (int part = 0; part < kParts; ++part) result[part] *= correction;
        const float kept = !kDrops || dropout.is_kept(query, first + lane) ? p : 0.0f;
        for (int key = 0; key < kTile; ++key) {
            const float weight = __shfl_sync(0xFFFFFFFFu, kept, key);
            for (int part = 0; part < kParts; ++part)
                result[part] += weight * values.numbers[key][lane + 32 * part];
        }
    }
    if (!exists) return;
    for (int part = 0; part < kParts; ++part)
        if (lane + 32 * part < head.size)
            y[head.in_y(query) + lane + 32 * part] = result[part] * factor / sum;
    if (lane == 0) sums[head.sums + query] = largest + logf(sum);
}

// The gradients of the queries.
template <int kParts, bool kDrops>
__global__ void attention_queries_kernel(Attention a, std::int64_t columns, const float* qkv, const float* y,
                                         const float* sums, const float* dy, float* d_qkv) {
    __shared__ Tile<kParts> keys, values;
    __shared__ float queries[kWarps][32 * kParts], gradients[kWarps][32 * kParts];
    const Head head(a, columns, blockIdx.x);
    const AttentionDropout dropout(a, blockIdx.x);
    const float factor = kDrops ? dropout.factor() : 1.0f;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.y) * kWarps,
                       query = first_query + warp;
    const bool exists = query < a.sequence;
    const float scale = rsqrtf(static_cast<float>(head.size));
    float product = 0;  // Σ dy y
    for (int i = lane; i < head.size; i += 32) {
        queries[warp][i] = exists ? qkv[head.in_qkv(query, 0) + i] * scale : 0.0f;
        gradients[warp][i] = exists ? dy[head.in_y(query) + i] : 0.0f;
        if (exists) product += gradients[warp][i] * y[head.in_y(query) + i];
    }
    product = warp_sum_all(product);
    const float log_sum = exists ? sums[head.sums + query] : 0.0f;

    float result[kParts] = {};
    const std::int64_t last_query = min(first_query + kWarps, a.sequence) - 1;
    for (std::int64_t first = 0; first <= last_query; first += kTile) {
        __syncthreads();
        load(keys, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 1); });
        load(values, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 2); });
        __syncthreads();
        if (!exists || first > query) continue;
        float slope = 0;
        if (first + lane <= query) {
            const float p = expf(dot(queries[warp], keys, lane, head.size) - log_sum);
            const bool kept = !kDrops || dropout.is_kept(query, first + lane);
            const float d_p = kept ? dot(gradients[warp], values, lane, head.size) * factor : 0.0f;
            slope = p * (d_p - product);
        }
        for (int key = 0; key < kTile; ++key) {
            const float weight = __shfl_sync(0xFFFFFFFFu, slope, key);
            for (int part = 0; part < kParts; ++part)
                result[part] += weight * keys.numbers[key][lane + 32 * part];
        }
    }
    if (!exists) return;
    for (int part = 0; part < kParts; ++part)
        if (lane + 32 * part < head.size)
            d_qkv[head.in_qkv(query, 0) + lane + 32 * part] = result[part] * scale;
}

// The gradients of the keys and values.
template <int kParts, bool kDrops>
__global__ void attention_keys_kernel(Attention a, std::int64_t columns, const float* qkv, const float* y,
                                      const float* sums, const float* dy, float* d_qkv) {
    __shared__ Tile<kParts> queries, gradients;
    __shared__ float keys[kWarps][32 * kParts], values[kWarps][32 * kParts];
    __shared__ float products[kTile], log_sums[kTile];
    const Head head(a, columns, blockIdx.x);
    const AttentionDropout dropout(a, blockIdx.x);
    const float factor = kDrops ? dropout.factor() : 1.0f;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.y) * kWarps, key = first_key + warp;
    const bool exists = key < a.sequence;
    const float scale = rsqrtf(static_cast<float>(head.size));
    for (int i = lane; i < head.size; i += 32) {
        keys[warp][i] = exists ? qkv[head.in_qkv(key, 1) + i] * scale : 0.0f;
        values[warp][i] = exists ? qkv[head.in_qkv(key, 2) + i] : 0.0f;
    }

    float d_key[kParts] = {}, d_value[kParts] = {};
    for (std::int64_t first = first_key / kTile * kTile; first < a.sequence; first += kTile) {
        __syncthreads();
        load(queries, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 0); });
        load(gradients, dy, head, first, [&](std::int64_t token) { return head.in_y(token); });
        for (int row = warp; row < kTile; row += kWarps) {
            const std::int64_t query = first + row;
            float product = 0;
            if (query < a.sequence)
                for (int i = lane; i < head.size; i += 32)
                    product += dy[head.in_y(query) + i] * y[head.in_y(query) + i];
            product = warp_sum_all(product);
            if (lane == 0) {
                products[row] = product;
                log_sums[row] = query < a.sequence ? sums[head.sums + query] : 0.0f;
            }
        }
        __syncthreads();
        if (!exists) continue;
        float p = 0, slope = 0;
        const std::int64_t query = first + lane;
        if (query >= key && query < a.sequence) {
            p = expf(dot(keys[warp], queries, lane, head.size) - log_sums[lane]);
            const bool kept = !kDrops || dropout.is_kept(query, key);
            const float d_p = kept ? dot(values[warp], gradients, lane, head.size) * factor : 0.0f;
            slope = p * (d_p - products[lane]);
            if (!kept) p = 0;
        }
        for (int row = 0; row < kTile; ++row) {
            const float weight = __shfl_sync(0xFFFFFFFFu, p, row),
                        change = __shfl_sync(0xFFFFFFFFu, slope, row);
            for (int part = 0; part < kParts; ++part) {
                d_value[part] += weight * gradients.numbers[row][lane + 32 * part];
                d_key[part] += change * queries.numbers[row][lane + 32 * part];
            }
        }
    }
    if (!exists) return;
    for (int part = 0; part < kParts; ++part) {
        const int i = lane + 32 * part;
        if (i >= head.size) continue;
        d_qkv[head.in_qkv(key, 1) + i] = d_key[part] * scale;
        d_qkv[head.in_qkv(key, 2) + i] = d_value[part] * factor;
    }
}

// Calls `queue` with the size of a head in units of 32 and whether there is dropout, as constants.
template <typename Queue>
void with_parts(const Attention& a, std::int64_t columns, Queue queue) {
    const auto with = [&](auto parts) {
        a.dropout.rate > 0 ? queue(parts, std::true_type{}) : queue(parts, std::false_type{});
    };
    const std::int64_t size = columns / a.heads;
    if (size <= 32) {
        with(std::integral_constant<int, 1>{});
    } else if (size <= 64) {
        with(std::integral_constant<int, 2>{});
    } else if (size <= 96) {
        with(std::integral_constant<int, 3>{});
    } else {
        with(std::integral_constant<int, 4>{});
    }
}

// The heads in x: there may be more than the 65535 blocks that CUDA takes in y.
dim3 blocks_of(const Attention& a, std::int64_t rows) {
    return {static_cast<unsigned>(rows / a.sequence * a.heads),
            static_cast<unsigned>((a.sequence + kWarps - 1) / kWarps)};
}

}  // namespace

void attention(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv, float* y,
               float* sums, cudaStream_t stream) {
    with_parts(a, columns, [&](auto parts, auto drops) {
        launch(attention_kernel<parts, drops>, blocks_of(a, rows), kWarps * 32, stream, a, columns, qkv, y,
               sums);
    });
}

void attention_backward(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv,
                        const float* y, const float* sums, const float* dy, float* d_qkv,
                        cudaStream_t stream) {
    with_parts(a, columns, [&](auto parts, auto drops) {
        launch(attention_queries_kernel<parts, drops>, blocks_of(a, rows), kWarps * 32, stream, a, columns,
               qkv, y, sums, dy, d_qkv);
        launch(attention_keys_kernel<parts, drops>, blocks_of(a, rows), kWarps * 32, stream, a, columns, qkv,
               y, sums, dy, d_qkv);
    });
}

}  // namespace dp::trainer::kernels
