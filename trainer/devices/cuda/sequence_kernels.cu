// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/sequence_kernels.hpp"

#include "trainer/devices/cuda/launching.cuh"

namespace dp::trainer::kernels {
namespace {

constexpr float kGeluRoot = 0.7978845608f, kGeluCube = 0.044715f;

// 4 bytes read and 4 written an element; the gradient reads 8.
__global__ void gelu_kernel(const float* x, std::int64_t count, float* y) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float t = tanhf(kGeluRoot * (x[i] + kGeluCube * x[i] * x[i] * x[i]));
        y[i] = 0.5f * x[i] * (1 + t);
    }
}
__global__ void gelu_backward_kernel(const float* x, const float* dy, std::int64_t count, float* dx) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float t = tanhf(kGeluRoot * (x[i] + kGeluCube * x[i] * x[i] * x[i]));
        const float slope = kGeluRoot * (1 + 3 * kGeluCube * x[i] * x[i]);
        dx[i] = dy[i] * (0.5f * (1 + t) + 0.5f * x[i] * (1 - t * t) * slope);
    }
}

__global__ void embed_kernel(const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                             const float* table, const float* positions, std::int64_t columns, float* y) {
    for (std::int64_t i = first_item(); i < rows * columns; i += stride()) {
        const std::int64_t row = i / columns, column = i % columns;
        y[i] = table[tokens[row] * columns + column] + positions[row % sequence * columns + column];
    }
}

// A block a row of the batch. The block of a token's first row adds up all rows of that token, in their
// order, and the others do nothing: no two blocks write the same place, and the sum is always the same.
__global__ void embed_table_backward_kernel(const std::int32_t* tokens, std::int64_t rows, const float* dy,
                                            std::int64_t columns, float* d_table) {
    const std::int64_t own = blockIdx.x;
    const std::int32_t token = tokens[own];
    __shared__ bool is_later;
    if (threadIdx.x == 0) is_later = false;
    __syncthreads();
    for (std::int64_t row = threadIdx.x; row < own; row += blockDim.x)
        if (tokens[row] == token) is_later = true;  // several threads may write the same
    __syncthreads();
    if (is_later) return;
    for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
        float sum = d_table[token * columns + column];
        for (std::int64_t row = own; row < rows; ++row)
            if (tokens[row] == token) sum += dy[row * columns + column];
        d_table[token * columns + column] = sum;
    }
}

__global__ void embed_positions_backward_kernel(std::int64_t rows, std::int64_t sequence, const float* dy,
                                                std::int64_t columns, float* d_positions) {
    for (std::int64_t i = first_item(); i < sequence * columns; i += stride()) {
        float sum = d_positions[i];
        for (std::int64_t first = 0; first < rows; first += sequence) sum += dy[first * columns + i];
        d_positions[i] = sum;
    }
}

// A warp a row, which it reads three times (twice from cache) and writes once.
__global__ void layer_norm_kernel(const float* x, std::int64_t rows, std::int64_t columns, const float* w,
                                  const float* b, float* y, float* saved) {
    const std::int64_t row = first_item() / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (row >= rows) return;  // the whole warp
    const float* in = x + row * columns;
    float sum = 0;
    for (std::int64_t c = lane; c < columns; c += 32) sum += in[c];
    const float mean = warp_sum_all(sum) / static_cast<float>(columns);
    float squares = 0;
    for (std::int64_t c = lane; c < columns; c += 32) squares += (in[c] - mean) * (in[c] - mean);
    const float scale = rsqrtf(warp_sum_all(squares) / static_cast<float>(columns) + kNormEpsilon);
    for (std::int64_t c = lane; c < columns; c += 32)
        y[row * columns + c] = (in[c] - mean) * scale * w[c] + b[c];
    if (lane == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = scale;
    }
}

__global__ void layer_norm_backward_kernel(const float* x, std::int64_t rows, std::int64_t columns,
                                           const float* w, const float* saved, const float* dy, float* dx) {
    const std::int64_t row = first_item() / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (row >= rows) return;
    const float *in = x + row * columns, *d = dy + row * columns;
    const float mean = saved[2 * row], scale = saved[2 * row + 1];
    float gradient = 0, product = 0;
    for (std::int64_t c = lane; c < columns; c += 32) {
        gradient += d[c] * w[c];
        product += d[c] * w[c] * ((in[c] - mean) * scale);
    }
    gradient = warp_sum_all(gradient) / static_cast<float>(columns);
    product = warp_sum_all(product) / static_cast<float>(columns);
    for (std::int64_t c = lane; c < columns; c += 32)
        dx[row * columns + c] += scale * (d[c] * w[c] - gradient - (in[c] - mean) * scale * product);
}

// A block of 32 x 8 threads sums 32 columns, as kernels.cu's sum_rows_kernel does.
constexpr int kSumColumns = 32, kSumParts = 8;
__global__ void layer_norm_parameters_kernel(const float* x, std::int64_t rows, std::int64_t columns,
                                             const float* saved, const float* dy, float* dw, float* db) {
    __shared__ float w_parts[kSumParts][kSumColumns], b_parts[kSumParts][kSumColumns];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
    float w_part = 0, b_part = 0;
    if (column < columns) {
        for (std::int64_t row = threadIdx.y; row < rows; row += kSumParts) {
            const float d = dy[row * columns + column];
            w_part += d * ((x[row * columns + column] - saved[2 * row]) * saved[2 * row + 1]);
            b_part += d;
        }
    }
    w_parts[threadIdx.y][threadIdx.x] = w_part;
    b_parts[threadIdx.y][threadIdx.x] = b_part;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    float w_total = 0, b_total = 0;
    for (int i = 0; i < kSumParts; ++i) {
        w_total += w_parts[i][threadIdx.x];
        b_total += b_parts[i][threadIdx.x];
    }
    dw[column] = w_total;
    db[column] = b_total;
}

// ---- attention: a warp a query (or, for the gradients of keys and values, a key), eight of one head a
// block. The others' vectors come through shared memory, 32 at a time; a lane works out the score against one
// of them, and holds every 32nd number of the result. Nothing is kept of the scores but their sums (Dao et
// al. 2022).

constexpr int kWarps = 8, kTile = 32;

// Where the numbers of a head of a sequence lie.
struct Head {
    int size;
    std::int64_t sequence, columns;
    std::int64_t first_row;  // of the sequence, among all rows
    std::int64_t column;     // of the head
    std::int64_t sums;       // of its first query

    __device__ Head(const Attention& a, std::int64_t row_length, std::int64_t item)
        : size(static_cast<int>(row_length / a.heads)),
          sequence(a.sequence),
          columns(row_length),
          first_row(item / a.heads * a.sequence),
          column(item % a.heads * size),
          sums(item * a.sequence) {}
    // part: 0 queries, 1 keys, 2 values.
    __device__ std::int64_t in_qkv(std::int64_t token, int part) const {
        return (first_row + token) * 3 * columns + part * columns + column;
    }
    __device__ std::int64_t in_y(std::int64_t token) const { return (first_row + token) * columns + column; }
};

// 32 vectors, one more number apart than they are long: lanes that read the same number of each meet no bank
// twice.
template <int kParts>
struct Tile {
    float numbers[kTile][32 * kParts + 1];
};

// By all threads: the vectors of tokens first .. first + 31; zeros beyond the sequence.
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

template <int kParts>
__global__ void attention_kernel(Attention a, std::int64_t columns, const float* qkv, float* y, float* sums) {
    __shared__ Tile<kParts> keys, values;
    __shared__ float queries[kWarps][32 * kParts];
    const Head head(a, columns, blockIdx.y);
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kWarps,
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
        for (int key = 0; key < kTile; ++key) {
            const float weight = __shfl_sync(0xFFFFFFFFu, p, key);
            for (int part = 0; part < kParts; ++part)
                result[part] += weight * values.numbers[key][lane + 32 * part];
        }
    }
    if (!exists) return;
    for (int part = 0; part < kParts; ++part)
        if (lane + 32 * part < head.size) y[head.in_y(query) + lane + 32 * part] = result[part] / sum;
    if (lane == 0) sums[head.sums + query] = largest + logf(sum);
}

// The gradients of the queries.
template <int kParts>
__global__ void attention_queries_kernel(Attention a, std::int64_t columns, const float* qkv, const float* y,
                                         const float* sums, const float* dy, float* d_qkv) {
    __shared__ Tile<kParts> keys, values;
    __shared__ float queries[kWarps][32 * kParts], gradients[kWarps][32 * kParts];
    const Head head(a, columns, blockIdx.y);
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_query = static_cast<std::int64_t>(blockIdx.x) * kWarps,
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
            slope = p * (dot(gradients[warp], values, lane, head.size) - product);
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
template <int kParts>
__global__ void attention_keys_kernel(Attention a, std::int64_t columns, const float* qkv, const float* y,
                                      const float* sums, const float* dy, float* d_qkv) {
    __shared__ Tile<kParts> queries, gradients;
    __shared__ float keys[kWarps][32 * kParts], values[kWarps][32 * kParts];
    __shared__ float products[kTile], log_sums[kTile];
    const Head head(a, columns, blockIdx.y);
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.x) * kWarps, key = first_key + warp;
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
            slope = p * (dot(values[warp], gradients, lane, head.size) - products[lane]);
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
        d_qkv[head.in_qkv(key, 2) + i] = d_value[part];
    }
}

// Calls launch with the number of 32s that a head's numbers fill, as a constant.
template <typename Launch>
void with_parts(std::int64_t size, Launch launch) {
    if (size <= 32) {
        launch(std::integral_constant<int, 1>{});
    } else if (size <= 64) {
        launch(std::integral_constant<int, 2>{});
    } else if (size <= 96) {
        launch(std::integral_constant<int, 3>{});
    } else {
        launch(std::integral_constant<int, 4>{});
    }
}

dim3 blocks_of(const Attention& a, std::int64_t rows) {
    return {static_cast<unsigned>((a.sequence + kWarps - 1) / kWarps),
            static_cast<unsigned>(rows / a.sequence * a.heads)};
}

}  // namespace

void gelu(const float* x, std::int64_t count, float* y, cudaStream_t stream) {
    gelu_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, count, y);
}

void gelu_backward(const float* x, const float* dy, std::int64_t count, float* dx, cudaStream_t stream) {
    gelu_backward_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, dy, count, dx);
}

void embed(const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence, const float* table,
           const float* positions, std::int64_t columns, float* y, cudaStream_t stream) {
    embed_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(tokens, rows, sequence, table,
                                                                      positions, columns, y);
}

void embed_backward(const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence, const float* dy,
                    std::int64_t columns, float* d_table, float* d_positions, cudaStream_t stream) {
    embed_table_backward_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(tokens, rows, dy,
                                                                                      columns, d_table);
    embed_positions_backward_kernel<<<blocks_for(sequence * columns), kThreads, 0, stream>>>(
        rows, sequence, dy, columns, d_positions);
}

void layer_norm(const float* x, std::int64_t rows, std::int64_t columns, const float* w, const float* b,
                float* y, float* saved, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>((rows * 32 + kThreads - 1) / kThreads);
    layer_norm_kernel<<<blocks, kThreads, 0, stream>>>(x, rows, columns, w, b, y, saved);
}

void layer_norm_backward(const float* x, std::int64_t rows, std::int64_t columns, const float* w,
                         const float* saved, const float* dy, float* dx, float* dw, float* db,
                         cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>((rows * 32 + kThreads - 1) / kThreads);
    layer_norm_backward_kernel<<<blocks, kThreads, 0, stream>>>(x, rows, columns, w, saved, dy, dx);
    const auto column_blocks = static_cast<unsigned>((columns + kSumColumns - 1) / kSumColumns);
    layer_norm_parameters_kernel<<<column_blocks, dim3(kSumColumns, kSumParts), 0, stream>>>(
        x, rows, columns, saved, dy, dw, db);
}

void attention(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv, float* y,
               float* sums, cudaStream_t stream) {
    with_parts(columns / a.heads, [&](auto parts) {
        attention_kernel<parts><<<blocks_of(a, rows), kWarps * 32, 0, stream>>>(a, columns, qkv, y, sums);
    });
}

void attention_backward(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv,
                        const float* y, const float* sums, const float* dy, float* d_qkv,
                        cudaStream_t stream) {
    with_parts(columns / a.heads, [&](auto parts) {
        attention_queries_kernel<parts>
            <<<blocks_of(a, rows), kWarps * 32, 0, stream>>>(a, columns, qkv, y, sums, dy, d_qkv);
        attention_keys_kernel<parts>
            <<<blocks_of(a, rows), kWarps * 32, 0, stream>>>(a, columns, qkv, y, sums, dy, d_qkv);
    });
}

}  // namespace dp::trainer::kernels
