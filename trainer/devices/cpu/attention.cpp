// SPDX-License-Identifier: Apache-2.0
//
// Causal attention on the CPU: one block of queries at a time, so that the scores of a whole sequence are
// never in memory (Dao et al. 2022, without the tiling of keys: a row of scores fits the cache here).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "trainer/devices/attention_dropout.hpp"
#include "trainer/devices/cpu/exponential.hpp"
#include "trainer/devices/cpu/gemm.hpp"
#include "trainer/devices/cpu/numbers.hpp"
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

template <typename From, typename To>
DP_WIDE_VECTORS void copy_rows(const From* from, std::int64_t from_stride, std::int64_t rows,
                               std::int64_t size, To* to, std::int64_t to_stride) {
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < size; ++i) store(wide(from[r * from_stride + i]), to[r * to_stride + i]);
}

// A head's rows of a tensor as float32: where they are, or a copy.
template <typename Number>
class HeadRows {
 public:
    HeadRows(Number* numbers, std::int64_t number_stride, std::int64_t rows, std::int64_t size)
        : numbers_(numbers), number_stride_(number_stride), rows_(rows), size_(size) {
        if constexpr (kCopies) copy_.resize(static_cast<std::size_t>(rows * size));
    }
    const HeadRows& read() {
        if constexpr (kCopies) copy_rows(numbers_, number_stride_, rows_, size_, copy_.data(), size_);
        return *this;
    }
    void write() const {
        if constexpr (kCopies) copy_rows(copy_.data(), size_, rows_, size_, numbers_, number_stride_);
    }
    float* from(std::int64_t row) {
        if constexpr (kCopies)
            return copy_.data() + row * size_;
        else
            return numbers_ + row * number_stride_;
    }
    std::int64_t stride() const { return kCopies ? size_ : number_stride_; }
    Operand operand(std::int64_t row, Form form = Form::plain) { return {from(row), stride(), form}; }

 private:
    static constexpr bool kCopies = !std::is_same_v<Number, float>;
    Number* numbers_;
    std::int64_t number_stride_, rows_, size_;
    std::vector<float> copy_;
};

template <typename Number>
bool attend(const Attention& a, const Head& head, std::int64_t item, In qkv, Out y, float* sums) {
    const std::int64_t columns = y.columns(), t = a.sequence;
    const AttentionDropout dropout(a, item);
    Number* first = qkv.data<Number>() + head.first;
    HeadRows<Number> q(first, head.stride, t, head.size), k(first + columns, head.stride, t, head.size),
        v(first + 2 * columns, head.stride, t, head.size),
        out(y.data<Number>() + head.y_first, head.y_stride, t, head.size);
    q.read(), k.read(), v.read();
    std::vector<float> scores(static_cast<std::size_t>(kQueries * t));
    bool fine = true;
    for (std::int64_t before = 0; before < t; before += kQueries) {
        const std::int64_t rows = std::min(kQueries, t - before), keys = before + rows;
        fine &= multiply(rows, keys, head.size, head.scale(), q.operand(before),
                         k.operand(0, Form::transposed), 0, scores.data(), keys);
        softmax_rows(scores.data(), rows, before, keys, head.starts_from(before), sums + before);
        if (a.dropout.rate > 0) drop(scores.data(), rows, before, keys, dropout);
        fine &= multiply(rows, head.size, keys, 1, {scores.data(), keys}, v.operand(0), 0, out.from(before),
                         out.stride());
    }
    out.write();
    return fine;
}

template <typename Number>
bool attend_backward(const Attention& a, const Head& head, std::int64_t item, In qkv, In y, const float* sums,
                     In dy, Out d_qkv) {
    const std::int64_t columns = y.columns(), t = a.sequence;
    const bool drops = a.dropout.rate > 0;
    const AttentionDropout dropout(a, item);
    const auto of_qkv = [&](In tensor, std::int64_t part) {
        return HeadRows<Number>(tensor.data<Number>() + head.first + part * columns, head.stride, t,
                                head.size);
    };
    const auto of_y = [&](In tensor) {
        return HeadRows<Number>(tensor.data<Number>() + head.y_first, head.y_stride, t, head.size);
    };
    HeadRows<Number> q = of_qkv(qkv, 0), k = of_qkv(qkv, 1), v = of_qkv(qkv, 2), out = of_y(y),
                     d_out = of_y(dy), dq = of_qkv(d_qkv, 0), dk = of_qkv(d_qkv, 1), dv = of_qkv(d_qkv, 2);
    for (auto* one : {&q, &k, &v, &out, &d_out}) one->read();
    std::vector<float> p(static_cast<std::size_t>(kQueries * t)), d_p(p.size());
    bool fine = true;
    // The last block sees all keys: it sets their gradients, and the others add to them.
    for (std::int64_t block = (t - 1) / kQueries; block >= 0; --block) {
        const std::int64_t before = block * kQueries, rows = std::min(kQueries, t - before),
                           keys = before + rows;
        const float beta = keys == t ? 0.0f : 1.0f;
        const Operand here = q.operand(before), d_here = d_out.operand(before);
        fine &= multiply(rows, keys, head.size, head.scale(), here, k.operand(0, Form::transposed), 0,
                         p.data(), keys);
        probabilities(p.data(), rows, before, keys, head.starts_from(before), sums + before);
        fine &=
            multiply(rows, keys, head.size, 1, d_here, v.operand(0, Form::transposed), 0, d_p.data(), keys);
        if (drops) drop(d_p.data(), rows, before, keys, dropout);
        score_gradients(d_p.data(), p.data(), rows, keys, d_here.data, out.from(before), d_here.stride,
                        head.size);
        if (drops) drop(p.data(), rows, before, keys, dropout);
        fine &= multiply(keys, head.size, rows, 1, {p.data(), keys, Form::transposed}, d_here, beta,
                         dv.from(0), dv.stride());
        fine &= multiply(rows, head.size, keys, head.scale(), {d_p.data(), keys}, k.operand(0), 0,
                         dq.from(before), dq.stride());
        fine &= multiply(keys, head.size, rows, head.scale(), {d_p.data(), keys, Form::transposed}, here,
                         beta, dk.from(0), dk.stride());
    }
    for (const auto* one : {&dq, &dk, &dv}) one->write();
    return fine;
}

}  // namespace

bool attention(const Attention& a, In qkv, Out y, Out sums) {
    const std::int64_t t = a.sequence;
    std::atomic<bool> sound = true;
    in_type_of(y, [&](auto number) {
        for_each_item(y.rows() / t * a.heads, [&](std::int64_t item) {
            const Head head(a, y.columns(), item);
            if (!attend<decltype(number)>(a, head, item, qkv, y, sums.data<float>() + head.sums_first))
                sound = false;
        });
    });
    return sound;
}

bool attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) {
    const std::int64_t t = a.sequence;
    std::atomic<bool> sound = true;
    in_type_of(y, [&](auto number) {
        for_each_item(y.rows() / t * a.heads, [&](std::int64_t item) {
            const Head head(a, y.columns(), item);
            const float* of_head = sums.data<float>() + head.sums_first;
            if (!attend_backward<decltype(number)>(a, head, item, qkv, y, of_head, dy, d_qkv)) sound = false;
        });
    });
    return sound;
}

}  // namespace dp::trainer::cpu
