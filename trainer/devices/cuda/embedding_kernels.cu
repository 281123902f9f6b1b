// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's token and position embeddings and their gradients, with their kernels. A token may make up a
// tenth of a batch or occur once: its rows are searched between its first and last one. Where ranks divide the
// table, a token's row is on one of them.
#include <climits>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

__device__ bool is_among(const Shard& words, std::int32_t token) {
    return token >= words.first && token < words.first + words.count;
}

// `packs`: of kWidth numbers, in a row. `words`: whose rows the table has; the vectors of others are 0. Positions may be null.
template <int kWidth, typename T>
__global__ void embed_kernel(const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                             const T* table, Shard words, const T* positions, std::int64_t packs, T* y) {
    for (std::int64_t i = first_item(); i < rows * packs; i += stride()) {
        const std::int64_t row = i / packs, pack = i % packs;
        Numbers<kWidth> vector = {};
        if (is_among(words, tokens[row]))
            vector = read_pack<kWidth>(table + ((tokens[row] - words.first) * packs + pack) * kWidth);
        if (positions != nullptr) {
            const auto place = read_pack<kWidth>(positions + (row % sequence * packs + pack) * kWidth);
            for (int j = 0; j < kWidth; ++j) vector.at[j] += place.at[j];
        }
        write_pack(y + i * kWidth, vector);
    }
}

// The first and last row of a token in a batch.
struct Span {
    int first, last;
};

__global__ void clear_spans_kernel(Span* spans, std::int64_t count) {
    for (std::int64_t i = first_item(); i < count; i += stride()) spans[i] = {INT_MAX, -1};
}

// The minimum and the maximum do not depend on the order.
__global__ void find_spans_kernel(const std::int32_t* tokens, std::int64_t rows, Shard words, Span* spans) {
    for (std::int64_t row = first_item(); row < rows; row += stride()) {
        if (!is_among(words, tokens[row])) continue;
        Span& span = spans[tokens[row] - words.first];
        atomicMin(&span.first, static_cast<int>(row));
        atomicMax(&span.last, static_cast<int>(row));
    }
}

constexpr int kWarpsOfToken = 16, kThreadsOfToken = 32 * kWarpsOfToken;
constexpr int kRowsAtOnce = 4;   // that a thread looks at
constexpr int kPacksOfLane = 3;  // that a lane adds up at once: 3 of each lane are GPT-2's 768 numbers

// One block per row of the batch. The block of a token's first row adds up all rows of that token, if it is one of `words`; the
// others do nothing. Each warp searches its part of the rows in order, and finally the warps' sums are added
// up in order, so the sum is always the same. `packs`: of kWidth numbers, per row.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreadsOfToken)
    embed_table_backward_kernel(const std::int32_t* tokens, Shard words, const Span* spans, const T* dy,
                                std::int64_t packs, float* d_table) {
    const auto own = static_cast<int>(blockIdx.x);
    const std::int32_t token = tokens[own];
    if (!is_among(words, token)) return;
    const Span span = spans[token - words.first];
    if (span.first != own) return;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    __shared__ Numbers<kWidth> shared[kWarpsOfToken][32];
    for (std::int64_t left = 0; left < packs; left += 32 * kPacksOfLane) {
        Numbers<kWidth> sums[kPacksOfLane] = {};
        for (int first = own + warp * 32 * kRowsAtOnce; first <= span.last;
             first += kThreadsOfToken * kRowsAtOnce) {
            unsigned found[kRowsAtOnce];  // of 32 rows each, which are the token's
#pragma unroll
            for (int i = 0; i < kRowsAtOnce; ++i) {
                const int row = first + i * 32 + lane;
                found[i] = __ballot_sync(0xFFFFFFFFu, row <= span.last && tokens[row] == token);
            }
            for (int i = 0; i < kRowsAtOnce; ++i) {
                for (unsigned rest = found[i]; rest != 0; rest &= rest - 1) {
                    const std::int64_t row = first + i * 32 + __ffs(static_cast<int>(rest)) - 1;
#pragma unroll
                    for (int part = 0; part < kPacksOfLane; ++part) {
                        const std::int64_t pack = left + part * 32 + lane;
                        if (pack >= packs) continue;
                        const auto vector = read_pack<kWidth>(dy + (row * packs + pack) * kWidth);
                        for (int j = 0; j < kWidth; ++j) sums[part].at[j] += vector.at[j];
                    }
                }
            }
        }
#pragma unroll
        for (int part = 0; part < kPacksOfLane; ++part) {
            shared[warp][lane] = sums[part];
            __syncthreads();
            for (int i = static_cast<int>(threadIdx.x); i < 32 * kWidth; i += kThreadsOfToken) {
                const std::int64_t column = (left + part * 32) * kWidth + i;
                float total = 0;
                for (const auto& of_warp : shared) total += of_warp[i / kWidth].at[i % kWidth];
                if (column < packs * kWidth)
                    d_table[(token - words.first) * packs * kWidth + column] += total;
            }
            __syncthreads();  // before the next part takes their place
        }
    }
}

template <typename T>
__global__ void embed_positions_backward_kernel(std::int64_t rows, std::int64_t sequence, const T* dy,
                                                std::int64_t columns, float* d_positions) {
    for (std::int64_t i = first_item(); i < sequence * columns; i += stride()) {
        float sum = d_positions[i];
        for (std::int64_t first = 0; first < rows; first += sequence) sum += read(dy[first * columns + i]);
        d_positions[i] = sum;
    }
}

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::embed(In tokens, In table, In positions, Out y) {
    CudaDevice::embed_part(tokens, table, {0, table.rows()}, positions, y);
}

void CudaDevice::embed_part(In tokens, In table, Shard words, In positions, Out y) {
    with_width(y.type(), y.columns(), {table.data<void>(), positions.data<void>(), y.data<void>()},
               [&]<typename T>(T, auto width) {
                   launch("embedding tokens", embed_kernel<width, T>, blocks_for(y.elements() / width),
                          kThreads, tokens, y.rows(), tokens.columns(), table, words, positions,
                          y.columns() / width, y);
               });
}

void CudaDevice::embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) {
    CudaDevice::embed_part_backward(tokens, dy, {0, d_table.rows()}, d_table, d_positions);
}

void CudaDevice::embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) {
    constexpr const char* kWhat = "the gradient of embedding";
    auto* spans = workspace<Span>(words.count);
    launch(kWhat, clear_spans_kernel, blocks_for(words.count), kThreads, spans, words.count);
    launch(kWhat, find_spans_kernel, blocks_for(dy.rows()), kThreads, tokens, dy.rows(), words, spans);
    with_width(dy.type(), dy.columns(), {dy.data<void>()}, [&]<typename T>(T, auto width) {
        launch(kWhat, embed_table_backward_kernel<width, T>, static_cast<unsigned>(dy.rows()),
               kThreadsOfToken, tokens, words, spans, dy, dy.columns() / width, d_table);
        launch(kWhat, embed_positions_backward_kernel<T>, blocks_for(tokens.columns() * dy.columns()),
               kThreads, dy.rows(), tokens.columns(), dy, dy.columns(), d_positions);
    });
}

}  // namespace dp::trainer
