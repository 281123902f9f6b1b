// SPDX-License-Identifier: Apache-2.0
//
// Causal attention on the CPU: one block of queries at a time, so that the scores of a whole sequence are
// never in memory (Dao et al. 2022, without the tiling of keys: a row of scores fits the cache here).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "trainer/devices/attention_dropout.hpp"
#include "trainer/devices/cpu/exponential.hpp"
#include "trainer/devices/cpu/gemm.hpp"
#include "trainer/devices/cpu/operations.hpp"
#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer::cpu {
namespace {

// Queries in a block: its scores against 1024 keys take 256 KiB, half of a core's cache.
constexpr std::int64_t kQueries = 64;

// Row r of the block sees the keys from starts[r] (null: 0) until its own, `before` + r. Turns scores into probabilities, zero of
// other keys. log_sums[r] is the row's log-sum-exp, from which the backward pass recomputes the probabilities.
DP_WIDE_VECTORS void softmax_rows(float* scores, std::int64_t rows, std::int64_t before, std::int64_t keys,
                                  const std::int32_t* starts, float* log_sums) {
    for (std::int64_t r = 0; r < rows; ++r) {
        float* row = scores + r * keys;
        const std::int64_t first = starts != nullptr ? starts[r] : 0, end = before + r + 1;
        float largest = row[first];
#pragma omp simd reduction(max : largest)
        for (std::int64_t k = first; k < end; ++k) largest = row[k] > largest ? row[k] : largest;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t k = first; k < end; ++k) {
            row[k] = exponential(row[k] - largest);
            sum += row[k];
        }
        const float factor = 1 / sum;
        for (std::int64_t k = first; k < end; ++k) row[k] *= factor;
        std::fill(row, row + first, 0.0f);
        std::fill(row + end, row + keys, 0.0f);
        log_sums[r] = largest + std::log(sum);
    }
}

// Recomputes the probabilities from the scores and log_sums.
DP_WIDE_VECTORS void probabilities(float* scores, std::int64_t rows, std::int64_t before, std::int64_t keys,
                                   const std::int32_t* starts, const float* log_sums) {
    for (std::int64_t r = 0; r < rows; ++r) {
        float* row = scores + r * keys;
        const std::int64_t first = starts != nullptr ? starts[r] : 0, end = before + r + 1;
        for (std::int64_t k = first; k < end; ++k) row[k] = exponential(row[k] - log_sums[r]);
        std::fill(row, row + first, 0.0f);
        std::fill(row + end, row + keys, 0.0f);
    }
}

// Applies dropout to the weights of queries from `before` on, or to their gradients: 0 where dropped,
// scaled up elsewhere.
DP_WIDE_VECTORS void drop(float* weights, std::int64_t rows, std::int64_t before, std::int64_t keys,
                          const AttentionDropout& dropout) {
    const float factor = dropout.factor();
    for (std::int64_t r = 0; r < rows; ++r) {
        float* row = weights + r * keys;
        const std::int64_t seen = before + r + 1;
        for (std::int64_t k = 0; k < seen; ++k)
            row[k] = dropout.is_kept(before + r, k) ? row[k] * factor : 0.0f;
    }
}

// d_p becomes the gradient of the scores: p (d_p - Σ dy y). With dropout, d_p has been dropped before and
// p has not.
DP_WIDE_VECTORS void score_gradients(float* d_p, const float* p, std::int64_t rows, std::int64_t keys,
                                     const float* dy, const float* y, std::int64_t stride,
                                     std::int64_t size) {
    for (std::int64_t r = 0; r < rows; ++r) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < size; ++i) sum += dy[r * stride + i] * y[r * stride + i];
        for (std::int64_t k = 0; k < keys; ++k)
            d_p[r * keys + k] = p[r * keys + k] * (d_p[r * keys + k] - sum);
    }
}

// The addresses of one head of one sequence.
struct Head {
    Head(const Attention& a, std::int64_t columns, std::int64_t item)
        : size(columns / a.heads),
          stride(3 * columns),
          y_stride(columns),
          first(item / a.heads * a.sequence * stride + item % a.heads * size),
          y_first(item / a.heads * a.sequence * columns + item % a.heads * size),
          sums_first(item * a.sequence),
          starts(a.starts != nullptr ? a.starts + item / a.heads * a.sequence : nullptr) {}
    std::int64_t size;                        // numbers of a query
    std::int64_t stride, y_stride;            // from one token to the next, in qkv and in y
    std::int64_t first, y_first, sums_first;  // of the first query, output and logarithm
    const std::int32_t* starts;               // of the sequence
    const std::int32_t* starts_from(std::int64_t token) const {
        return starts != nullptr ? starts + token : nullptr;
    }
    float scale() const { return 1 / std::sqrt(static_cast<float>(size)); }
};

}  // namespace

bool attention(const Attention& a, In qkv, Out y, Out sums) {
    const std::int64_t columns = y.columns(), t = a.sequence;
    const bool drops = a.dropout.rate > 0;
    std::atomic<bool> sound = true;
    for_each_item(y.rows() / t * a.heads, [&](std::int64_t item) {
        const Head head(a, columns, item);
        const AttentionDropout dropout(a, item);
        const float *q = qkv.data<float>() + head.first, *k = q + columns, *v = k + columns;
        float* out = y.data<float>() + head.y_first;
        std::vector<float> scores(static_cast<std::size_t>(kQueries * t));
        for (std::int64_t before = 0; before < t; before += kQueries) {
            const std::int64_t rows = std::min(kQueries, t - before), keys = before + rows;
            const bool scored =
                multiply(rows, keys, head.size, head.scale(), {q + before * head.stride, head.stride},
                         {k, head.stride, Form::transposed}, 0, scores.data(), keys);
            softmax_rows(scores.data(), rows, before, keys, head.starts_from(before),
                         sums.data<float>() + head.sums_first + before);
            if (drops) drop(scores.data(), rows, before, keys, dropout);
            const bool mixed = multiply(rows, head.size, keys, 1, {scores.data(), keys}, {v, head.stride}, 0,
                                        out + before * head.y_stride, head.y_stride);
            if (!scored || !mixed) sound = false;
        }
    });
    return sound;
}

bool attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) {
    const std::int64_t columns = y.columns(), t = a.sequence;
    const bool drops = a.dropout.rate > 0;
    std::atomic<bool> sound = true;
    for_each_item(y.rows() / t * a.heads, [&](std::int64_t item) {
        const Head head(a, columns, item);
        const AttentionDropout dropout(a, item);
        const float *q = qkv.data<float>() + head.first, *k = q + columns, *v = k + columns;
        const float *out = y.data<float>() + head.y_first, *d_out = dy.data<float>() + head.y_first;
        float *dq = d_qkv.data<float>() + head.first, *dk = dq + columns, *dv = dk + columns;
        std::vector<float> p(static_cast<std::size_t>(kQueries * t)), d_p(p.size());
        bool fine = true;
        // The last block sees all keys: it sets their gradients, and the others add to them.
        for (std::int64_t block = (t - 1) / kQueries; block >= 0; --block) {
            const std::int64_t before = block * kQueries, rows = std::min(kQueries, t - before),
                               keys = before + rows;
            const float beta = keys == t ? 0.0f : 1.0f;
            const Operand here{q + before * head.stride, head.stride};
            const Operand d_here{d_out + before * head.y_stride, head.y_stride};
            fine &= multiply(rows, keys, head.size, head.scale(), here, {k, head.stride, Form::transposed}, 0,
                             p.data(), keys);
            probabilities(p.data(), rows, before, keys, head.starts_from(before),
                          sums.data<float>() + head.sums_first + before);
            fine &= multiply(rows, keys, head.size, 1, d_here, {v, head.stride, Form::transposed}, 0,
                             d_p.data(), keys);
            if (drops) drop(d_p.data(), rows, before, keys, dropout);
            score_gradients(d_p.data(), p.data(), rows, keys, d_here.data, out + before * head.y_stride,
                            head.y_stride, head.size);
            if (drops) drop(p.data(), rows, before, keys, dropout);
            fine &= multiply(keys, head.size, rows, 1, {p.data(), keys, Form::transposed}, d_here, beta, dv,
                             head.stride);
            fine &= multiply(rows, head.size, keys, head.scale(), {d_p.data(), keys}, {k, head.stride}, 0,
                             dq + before * head.stride, head.stride);
            fine &= multiply(keys, head.size, rows, head.scale(), {d_p.data(), keys, Form::transposed}, here,
                             beta, dk, head.stride);
        }
        if (!fine) sound = false;
    });
    return sound;
}

}  // namespace dp::trainer::cpu
