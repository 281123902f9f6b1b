// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CPU device with their gradients.
#include <cmath>
#include <vector>

#include "trainer/devices/cpu/exponential.hpp"
#include "trainer/devices/cpu/numbers.hpp"
#include "trainer/devices/cpu/operations.hpp"
#include "trainer/devices/cpu/parallel.hpp"

namespace dp::trainer::cpu {
namespace {

struct RowLoss {
    double loss = 0;
    double right = 0;  // of the row, from 0 to 1
};

// Several threads compute the rows; they are added up in order.
void add_up(const std::vector<RowLoss>& rows, const Tensor& metrics) {
    for (const auto& row : rows) {
        metrics.data<double>()[0] += row.loss;
        metrics.data<double>()[1] += row.right;
    }
}

// What the softmax of a row needs to know of a part of its logits.
struct SoftmaxNotes {
    float largest;
    std::int64_t best;  // the place of the first of the largest
    float total;        // Σ exp(logit - largest)
};

template <typename Number>
DP_WIDE_VECTORS SoftmaxNotes notes_of(const Number* row, std::int64_t classes) {
    float largest = wide(row[0]);
#pragma omp simd reduction(max : largest)
    for (std::int64_t c = 0; c < classes; ++c) largest = wide(row[c]) > largest ? wide(row[c]) : largest;
    std::int64_t best = 0;
    while (best + 1 < classes && wide(row[best]) < largest) ++best;
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t c = 0; c < classes; ++c) total += exponential(wide(row[c]) - largest);
    return {largest, best, total};
}

// scale * softmax, less `scale` at the label, if that is here. `gradient` may be `row`.
template <typename Number>
DP_WIDE_VECTORS void softmax_row(const Number* row, std::int64_t classes, float largest, float factor,
                                 std::int64_t label, float scale, Number* gradient) {
    const bool is_here = label >= 0 && label < classes;
    const float own = is_here ? factor * exponential(wide(row[label]) - largest) - scale : 0.0f;
#pragma omp simd
    for (std::int64_t c = 0; c < classes; ++c)
        store(factor * exponential(wide(row[c]) - largest), gradient[c]);
    if (is_here) store(own, gradient[label]);
}

template <typename Number>
RowLoss cross_entropy_row(const Number* row, std::int64_t classes, std::int32_t label, float scale,
                          Number* gradient) {
    const auto [largest, best, total] = notes_of(row, classes);
    const float own = wide(row[label]);
    if (gradient != nullptr) softmax_row(row, classes, largest, scale / total, label, scale, gradient);
    return {static_cast<double>(std::log(total) - (own - largest)), best == label ? 1.0 : 0.0};
}

struct Overlap {
    double both = 0, predicted = 0, wanted = 0;  // Σ p t, Σ p, Σ t
    double right = 0;                            // numbers on the right side of one half
};

template <typename Number>
DP_WIDE_VECTORS Overlap overlap_of(const Number* logits, const float* target, std::int64_t count) {
    // Short, because a float sums it: with 4096 the loss of a small image had errors of 3e-6 where a vector is
    // 8 numbers wide, as much as a step makes of a small gradient.
    constexpr std::int64_t kRun = 128;
    Overlap total;
    for (std::int64_t from = 0; from < count; from += kRun) {
        const std::int64_t end = from + kRun < count ? from + kRun : count;
        float both = 0, predicted = 0, wanted = 0, right = 0;
#pragma omp simd reduction(+ : both, predicted, wanted, right)
        for (std::int64_t i = from; i < end; ++i) {
            const float p = 1 / (1 + exponential(-wide(logits[i])));
            both += p * target[i];
            predicted += p;
            wanted += target[i];
            right += (wide(logits[i]) > 0) == (target[i] > 0.5f) ? 1.0f : 0.0f;
        }
        total.both += static_cast<double>(both);
        total.predicted += static_cast<double>(predicted);
        total.wanted += static_cast<double>(wanted);
        total.right += static_cast<double>(right);
    }
    return total;
}

// d loss / d p = base - slope * target.
template <typename Number>
DP_WIDE_VECTORS void dice_gradient(const Number* logits, const float* target, std::int64_t count, float base,
                                   float slope, Number* gradient) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float p = 1 / (1 + exponential(-wide(logits[i])));
        store((base - slope * target[i]) * p * (1 - p), gradient[i]);
    }
}

}  // namespace

void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                           Out d_logits) {
    const std::int64_t stride = logits.columns();
    std::vector<RowLoss> rows(static_cast<std::size_t>(logits.rows()));
    in_type_of(logits, [&](auto number) {
        using Number = decltype(number);
        for_each_item(logits.rows(), kWorthAThread / classes, [&](std::int64_t r) {
            rows[static_cast<std::size_t>(r)] =
                cross_entropy_row(logits.data<Number>() + r * stride, classes, labels.data<std::int32_t>()[r],
                                  scale, d_logits ? d_logits.data<Number>() + r * stride : nullptr);
        });
    });
    add_up(rows, metrics);
}

void softmax_part(In logits, Shard words, In labels, Out notes) {
    const std::int64_t stride = logits.columns();
    in_type_of(logits, [&](auto number) {
        using Number = decltype(number);
        for_each_item(labels.rows(), kWorthAThread / words.count, [&](std::int64_t r) {
            const Number* row = logits.data<Number>() + r * stride;
            const auto [largest, best, total] = notes_of(row, words.count);
            const std::int64_t label = labels.data<std::int32_t>()[r] - words.first;
            float* noted = notes.data<float>() + r * kSoftmaxNumbers;
            noted[0] = largest;
            noted[1] = static_cast<float>(words.first + best);
            noted[2] = total;
            noted[3] = label >= 0 && label < words.count ? wide(row[label]) : 0;
        });
    });
}

void softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale, InOut metrics,
                                    Out d_logits) {
    const std::int64_t stride = logits.columns(), count = labels.rows(),
                       parts = notes.elements() / count / kSoftmaxNumbers;
    std::vector<RowLoss> rows(static_cast<std::size_t>(count));
    for_each_item(count, kWorthAThread / words.count, [&](std::int64_t r) {
        const auto of_part = [&](std::int64_t part) {
            return notes.data<float>() + (part * count + r) * kSoftmaxNumbers;
        };
        const float* best = of_part(0);
        for (std::int64_t part = 1; part < parts; ++part)
            if (of_part(part)[0] > best[0]) best = of_part(part);
        const float largest = best[0];
        float total = 0, own = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
            total += of_part(part)[2] * std::exp(of_part(part)[0] - largest);
            own += of_part(part)[3];
        }
        const std::int32_t label = labels.data<std::int32_t>()[r];
        rows[static_cast<std::size_t>(r)] = {static_cast<double>(std::log(total) - (own - largest)),
                                             best[1] == static_cast<float>(label) ? 1.0 : 0.0};
        if (!d_logits) return;
        in_type_of(logits, [&](auto number) {
            using Number = decltype(number);
            softmax_row(logits.data<Number>() + r * stride, words.count, largest, scale / total,
                        label - words.first, scale, d_logits.data<Number>() + r * stride);
        });
    });
    add_up(rows, metrics);
}

void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) {
    const auto columns = static_cast<float>(prediction.columns());
    in_type_of(prediction, [&](auto number) {
        using Number = decltype(number);
        for (std::int64_t i = 0, count = prediction.elements(); i < count; ++i) {
            const float difference = wide(prediction.data<Number>()[i]) - target.data<float>()[i];
            metrics.data<double>()[0] += static_cast<double>(difference) * difference / columns;
            if (d_prediction) store(scale * 2 * difference / columns, d_prediction.data<Number>()[i]);
        }
    });
}

void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) {
    const std::int64_t count = logits.columns();
    std::vector<RowLoss> rows(static_cast<std::size_t>(logits.rows()));
    in_type_of(logits, [&](auto number) {
        using Number = decltype(number);
        for_each_item(logits.rows(), 1, [&](std::int64_t r) {
            const Number* row = logits.data<Number>() + r * count;
            const float* wanted = target.data<float>() + r * count;
            const Overlap o = overlap_of(row, wanted, count);
            const double above = 2 * o.both + kDiceSmooth, below = o.predicted + o.wanted + kDiceSmooth;
            rows[static_cast<std::size_t>(r)] = {1 - above / below, o.right / static_cast<double>(count)};
            if (!d_logits) return;
            const double s = static_cast<double>(scale);
            dice_gradient(row, wanted, count, static_cast<float>(s * above / (below * below)),
                          static_cast<float>(s * 2 / below), d_logits.data<Number>() + r * count);
        });
    });
    add_up(rows, metrics);
}

}  // namespace dp::trainer::cpu
