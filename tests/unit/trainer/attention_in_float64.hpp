// SPDX-License-Identifier: Apache-2.0
//
// Attention and its gradient in float64, token by token: what a device's are compared with.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "trainer/devices/attention_dropout.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// As device.hpp says. `starts`: the first key that each query sees.
inline std::vector<double> attention(const Attention& a, const std::vector<double>& qkv, std::size_t columns,
                                     const std::vector<std::int32_t>& starts) {
    const auto sequence = static_cast<std::size_t>(a.sequence), heads = static_cast<std::size_t>(a.heads);
    const std::size_t size = columns / heads, rows = qkv.size() / 3 / columns;
    std::vector<double> y(rows * columns);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row / sequence * sequence;
        const std::size_t seen = first + static_cast<std::size_t>(starts[row]);
        for (std::size_t head = 0; head < heads; ++head) {
            const double* q = &qkv[row * 3 * columns + head * size];
            std::vector<double> weights;
            double total = 0;
            for (std::size_t other = seen; other <= row; ++other) {
                const double* k = &qkv[other * 3 * columns + columns + head * size];
                double score = 0;
                for (std::size_t i = 0; i < size; ++i) score += q[i] * k[i];
                weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
                total += weights.back();
            }
            const AttentionDropout dropout(a, static_cast<std::int64_t>(row / sequence * heads + head));
            for (std::size_t other = seen; other <= row; ++other) {
                const double* v = &qkv[other * 3 * columns + 2 * columns + head * size];
                double weight = weights[other - seen] / total;
                if (a.dropout.rate > 0)
                    weight *= dropout.is_kept(static_cast<std::int64_t>(row - first),
                                              static_cast<std::int64_t>(other - first))
                                  ? static_cast<double>(dropout.factor())
                                  : 0.0;
                for (std::size_t i = 0; i < size; ++i) y[row * columns + head * size + i] += weight * v[i];
            }
        }
    }
    return y;
}

// The gradient of attention()'s qkv.
inline std::vector<double> attention_slopes(const Attention& a, const std::vector<double>& qkv,
                                            const std::vector<double>& dy, std::size_t columns,
                                            const std::vector<std::int32_t>& starts) {
    const auto sequence = static_cast<std::size_t>(a.sequence), heads = static_cast<std::size_t>(a.heads);
    const std::size_t size = columns / heads, rows = qkv.size() / 3 / columns;
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    std::vector<double> slopes(qkv.size());
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t head = 0; head < heads; ++head) {
            const std::size_t first = row / sequence * sequence,
                              seen = first + static_cast<std::size_t>(starts[row]);
            const auto place = [&](std::size_t token, std::size_t what) {
                return (token * 3 + what) * columns + head * size;
            };
            const auto dot = [&](const double* one, const double* other) {
                return std::inner_product(one, one + size, other, 0.0);
            };
            const double *q = &qkv[place(row, 0)], *d = &dy[row * columns + head * size];
            const AttentionDropout dropout(a, static_cast<std::int64_t>(row / sequence * heads + head));
            std::vector<double> weights, kept, d_weights;
            double total = 0, mean = 0;
            for (std::size_t other = seen; other <= row; ++other) {
                const auto key = static_cast<std::int64_t>(other - first);
                const bool is_kept =
                    a.dropout.rate == 0 || dropout.is_kept(static_cast<std::int64_t>(row - first), key);
                const double factor = a.dropout.rate == 0 ? 1 : static_cast<double>(dropout.factor());
                weights.push_back(std::exp(dot(q, &qkv[place(other, 1)]) * scale));
                total += weights.back();
                kept.push_back(is_kept ? factor : 0);
                d_weights.push_back(kept.back() * dot(d, &qkv[place(other, 2)]));
            }
            for (std::size_t i = 0; i < weights.size(); ++i) {
                weights[i] /= total;
                mean += weights[i] * d_weights[i];
            }
            for (std::size_t i = 0; i < weights.size(); ++i) {
                const double slope = weights[i] * (d_weights[i] - mean) * scale;
                const std::size_t key = place(seen + i, 1), value = place(seen + i, 2);
                for (std::size_t at = 0; at < size; ++at) {
                    slopes[place(row, 0) + at] += slope * qkv[key + at];
                    slopes[key + at] += slope * q[at];
                    slopes[value + at] += weights[i] * kept[i] * d[at];
                }
            }
        }
    return slopes;
}

}  // namespace dp::trainer
