// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's token and position embeddings and their gradients, with their kernels. A token may make up a
// tenth of a batch or occur once: its rows are searched between its first and last one, by one block, or by
// several where there are many. Where ranks divide the table, a token's row is on one of them.
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

// The first and last row of a token in a batch, and how many there are.
struct Span {
    int first, last, count;
};

// A token of at least kLong rows is long: kPieces blocks each add up the rows of a piece of its span.
constexpr int kLong = 512, kPieces = 8;
struct LongTokens {
    int count;
    int words[1];  // and more behind it
};

__global__ void clear_spans_kernel(Span* spans, std::int64_t count, LongTokens* longs) {
    for (std::int64_t i = first_item(); i < count; i += stride()) spans[i] = {INT_MAX, -1, 0};
    if (first_item() == 0) longs->count = 0;
}

// Minimum, maximum and count do not depend on the order.
__global__ void find_spans_kernel(const std::int32_t* tokens, std::int64_t rows, Shard words, Span* spans) {
    for (std::int64_t row = first_item(); row < rows; row += stride()) {
        if (!is_among(words, tokens[row])) continue;
        Span& span = spans[tokens[row] - words.first];
        atomicMin(&span.first, static_cast<int>(row));
        atomicMax(&span.last, static_cast<int>(row));
        atomicAdd(&span.count, 1);
    }
}

// In any order: each has its own parts of sums.
__global__ void list_long_tokens_kernel(const Span* spans, std::int64_t count, LongTokens* longs) {
    for (std::int64_t i = first_item(); i < count; i += stride())
        if (spans[i].count >= kLong) longs->words[atomicAdd(&longs->count, 1)] = static_cast<int>(i);
}

constexpr int kWarpsOfToken = 16, kThreadsOfToken = 32 * kWarpsOfToken;
constexpr int kRowsAtOnce = 4;   // that a thread looks at
constexpr int kPacksOfLane = 3;  // that a lane adds up at once: 3 of each lane are GPT-2's 768 numbers

// Run by a block: put(column, sum) of all rows of a token from `begin` to `end`. Each warp searches its part of the rows in order, and
// finally the warps' sums are added up in order, so the sum is always the same. `packs`: of kWidth numbers, per row.
template <int kWidth, typename T, typename Put>
__device__ void sum_token(const std::int32_t* tokens, std::int32_t token, int begin, int end, const T* dy,
                          std::int64_t packs, Put put) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    __shared__ Numbers<kWidth> shared[kWarpsOfToken][32];
    for (std::int64_t left = 0; left < packs; left += 32 * kPacksOfLane) {
        Numbers<kWidth> sums[kPacksOfLane] = {};
        for (int first = begin + warp * 32 * kRowsAtOnce; first <= end;
             first += kThreadsOfToken * kRowsAtOnce) {
            unsigned found[kRowsAtOnce];  // of 32 rows each, which are the token's
#pragma unroll
            for (int i = 0; i < kRowsAtOnce; ++i) {
                const int row = first + i * 32 + lane;
                found[i] = __ballot_sync(0xFFFFFFFFu, row <= end && tokens[row] == token);
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
                if (column < packs * kWidth) put(column, total);
            }
            __syncthreads();  // before the next part takes their place
        }
    }
}

// One block per row of the batch. The block of a token's first row adds up all rows of that token, if it is one of `words` and not
// long; the others do nothing.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreadsOfToken)
    embed_table_backward_kernel(const std::int32_t* tokens, Shard words, const Span* spans, const T* dy,
                                std::int64_t packs, float* d_table) {
    const auto own = static_cast<int>(blockIdx.x);
    const std::int32_t token = tokens[own];
    if (!is_among(words, token)) return;
    const Span span = spans[token - words.first];
    if (span.first != own || span.count >= kLong) return;
    float* const to = d_table + (token - words.first) * packs * kWidth;
    sum_token<kWidth>(tokens, token, own, span.last, dy, packs,
                      [=](std::int64_t column, float sum) { to[column] += sum; });
}

// Block [x, y] adds up piece y of the span of long token x. parts [long tokens, kPieces, columns].
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreadsOfToken)
    embed_long_tokens_backward_kernel(const std::int32_t* tokens, Shard words, const Span* spans,
                                      const LongTokens* longs, const T* dy, std::int64_t packs,
                                      float* parts) {
    if (static_cast<int>(blockIdx.x) >= longs->count) return;
    const int word = longs->words[blockIdx.x];
    const Span span = spans[word];
    const int rows = (span.last - span.first + kPieces) / kPieces;
    const int first = span.first + static_cast<int>(blockIdx.y) * rows;
    float* const to = parts + (blockIdx.x * kPieces + blockIdx.y) * packs * kWidth;
    sum_token<kWidth>(tokens, static_cast<std::int32_t>(words.first + word), first,
                      min(first + rows - 1, span.last), dy, packs,
                      [=](std::int64_t column, float sum) { to[column] = sum; });
}

// Adds up the pieces of each long token in their order.
__global__ void add_pieces_kernel(const LongTokens* longs, const float* parts, std::int64_t columns,
                                  float* d_table) {
    for (std::int64_t i = first_item(); i < longs->count * columns; i += stride()) {
        const std::int64_t token = i / columns, column = i % columns;
        float sum = 0;
        for (int piece = 0; piece < kPieces; ++piece)
            sum += parts[(token * kPieces + piece) * columns + column];
        d_table[longs->words[token] * columns + column] += sum;
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
    const std::int64_t rows = dy.rows(), columns = dy.columns(), most_long = rows / kLong;
    auto* parts = workspace<float>(most_long * kPieces * columns + words.count * 3 + 1 + most_long);
    auto* spans = reinterpret_cast<Span*>(parts + most_long * kPieces * columns);
    auto* longs = reinterpret_cast<LongTokens*>(spans + words.count);
    launch(kWhat, clear_spans_kernel, blocks_for(words.count), kThreads, spans, words.count, longs);
    launch(kWhat, find_spans_kernel, blocks_for(rows), kThreads, tokens, rows, words, spans);
    with_width(dy.type(), columns, {dy.data<void>()}, [&]<typename T>(T, auto width) {
        launch(kWhat, embed_table_backward_kernel<width, T>, static_cast<unsigned>(rows), kThreadsOfToken,
               tokens, words, spans, dy, columns / width, d_table);
        if (most_long > 0) {
            launch(kWhat, list_long_tokens_kernel, blocks_for(words.count), kThreads, spans, words.count,
                   longs);
            launch(kWhat, embed_long_tokens_backward_kernel<width, T>,
                   dim3(static_cast<unsigned>(most_long), kPieces), kThreadsOfToken, tokens, words, spans,
                   longs, dy, columns / width, parts);
            launch(kWhat, add_pieces_kernel, blocks_for(most_long * columns), kThreads, longs, parts, columns,
                   d_table);
        }
        launch(kWhat, embed_positions_backward_kernel<T>, blocks_for(tokens.columns() * columns), kThreads,
               rows, tokens.columns(), dy, columns, d_positions);
    });
}

}  // namespace dp::trainer
