// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's attention in f32, with its kernels. A warp handles one query (or, for the gradients of keys
// and values, one key), a block eight of one head. The others' vectors come through shared memory, 32 at a
// time; a lane computes the score against one of them and holds every 32nd number of the result. Only the
// sums of the scores are kept (Dao et al. 2022).
#include "trainer/devices/cuda/attention_head.cuh"
#include "trainer/devices/cuda/launching.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

constexpr int kWarps = 8, kTile = 32;

// A warp for each sequence.
__global__ void document_starts_kernel(const std::int32_t* tokens, std::int64_t sequences,
                                       std::int64_t length, std::int32_t end, std::int32_t* starts) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (std::int64_t sequence = first_item() / 32; sequence < sequences; sequence += stride() / 32) {
        std::int64_t start = 0;
        for (std::int64_t first = 0; first < length; first += 32) {
            const std::int64_t place = first + lane, row = sequence * length + place;
            const unsigned ends = __ballot_sync(0xFFFFFFFFu, place < length && tokens[row] == end);
            const unsigned until_here = ends & (0xFFFFFFFFu >> (31 - lane));
            if (place < length)
                starts[row] =
                    static_cast<std::int32_t>(until_here != 0 ? first + 31 - __clz(until_here) : start);
            if (ends != 0) start = first + 31 - __clz(ends);
        }
    }
}

// 32 vectors, one number apart: lanes that read the same element of each hit different banks.
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
    const Head head(a, columns, kWarps);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_query = std::int64_t{head.part} * kWarps, query = first_query + warp;
    const bool exists = query < a.sequence;
    for (int i = lane; i < head.size; i += 32)
        queries[warp][i] = exists ? qkv[head.in_qkv(query, 0) + i] * scale : 0.0f;

    float largest = -INFINITY, sum = 0, result[kParts] = {};
    const std::int64_t last_query = min(first_query + kWarps, a.sequence) - 1, start = head.start(query);
    for (std::int64_t first = head.start(first_query) / kTile * kTile; first <= last_query; first += kTile) {
        __syncthreads();
        load(keys, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 1); });
        load(values, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 2); });
        __syncthreads();
        if (!exists || first > query || first + kTile <= start) continue;
        const bool seen = first + lane >= start && first + lane <= query;
        const float score = seen ? dot(queries[warp], keys, lane, head.size) : -INFINITY;
        const float now = fmaxf(largest, warp_max_all(score));
        const float correction = expf(largest - now), p = seen ? expf(score - now) : 0.0f;
        sum = sum * correction + warp_sum_all(p);
        largest = now;
        for (int part = 0; part < kParts; ++part) result[part] *= correction;
        const float kept = !kDrops || head.dropout.is_kept(query, first + lane) ? p : 0.0f;
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
    const Head head(a, columns, kWarps);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_query = std::int64_t{head.part} * kWarps, query = first_query + warp;
    const bool exists = query < a.sequence;
    float product = 0;  // Σ dy y
    for (int i = lane; i < head.size; i += 32) {
        queries[warp][i] = exists ? qkv[head.in_qkv(query, 0) + i] * scale : 0.0f;
        gradients[warp][i] = exists ? dy[head.in_y(query) + i] : 0.0f;
        if (exists) product += gradients[warp][i] * y[head.in_y(query) + i];
    }
    product = warp_sum_all(product);
    const float log_sum = exists ? sums[head.sums + query] : 0.0f;

    float result[kParts] = {};
    const std::int64_t last_query = min(first_query + kWarps, a.sequence) - 1, start = head.start(query);
    for (std::int64_t first = head.start(first_query) / kTile * kTile; first <= last_query; first += kTile) {
        __syncthreads();
        load(keys, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 1); });
        load(values, qkv, head, first, [&](std::int64_t token) { return head.in_qkv(token, 2); });
        __syncthreads();
        if (!exists || first > query) continue;
        float slope = 0;
        if (first + lane >= start && first + lane <= query) {
            const float p = expf(dot(queries[warp], keys, lane, head.size) - log_sum);
            const bool kept = !kDrops || head.dropout.is_kept(query, first + lane);
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
    const Head head(a, columns, kWarps);
    const float factor = kDrops ? head.dropout.factor() : 1.0f, scale = head.scale();
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_key = std::int64_t{head.part} * kWarps, key = first_key + warp;
    const bool exists = key < a.sequence;
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
        if (query >= key && query < a.sequence && head.start(query) <= key) {
            p = expf(dot(keys[warp], queries, lane, head.size) - log_sums[lane]);
            const bool kept = !kDrops || head.dropout.is_kept(query, key);
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

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::document_starts(In tokens, std::int32_t end, Out starts) {
    launch("the starts of documents", document_starts_kernel, blocks_for(tokens.rows() * 32), kThreads,
           tokens, tokens.rows(), tokens.columns(), end, starts);
}

void CudaDevice::attention(const Attention& a, In qkv, Out y, Out sums) {
    if (!fits(a, y)) return;
    if (qkv.type() == Type::bf16) {
        if (!attention_by_cudnn(a, qkv, y, sums)) attention_bf16(a, qkv, y, sums);
        return;
    }
    with_head_size(a, y, [&](auto size, auto drops) {
        launch("attention", attention_kernel<size / 32, drops>, blocks_of(a, y, kWarps), kWarps * 32, a,
               y.columns(), qkv, y, sums);
    });
}

void CudaDevice::attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) {
    if (!fits(a, y)) return;
    if (qkv.type() == Type::bf16) {
        if (!attention_backward_by_cudnn(a, qkv, y, sums, dy, d_qkv))
            attention_bf16_backward(a, qkv, y, sums, dy, d_qkv);
        return;
    }
    constexpr const char* kWhat = "the gradient of attention";
    with_head_size(a, y, [&](auto size, auto drops) {
        launch(kWhat, attention_queries_kernel<size / 32, drops>, blocks_of(a, y, kWarps), kWarps * 32, a,
               y.columns(), qkv, y, sums, dy, d_qkv);
        launch(kWhat, attention_keys_kernel<size / 32, drops>, blocks_of(a, y, kWarps), kWarps * 32, a,
               y.columns(), qkv, y, sums, dy, d_qkv);
    });
}

}  // namespace dp::trainer
