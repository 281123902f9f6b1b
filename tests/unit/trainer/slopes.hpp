// SPDX-License-Identifier: Apache-2.0
//
// Slopes of a function in float64 by central differences: what gradients are compared with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "trainer/base/random.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

inline std::vector<double> widened(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

inline double weighted_sum(const std::vector<double>& values, const std::vector<float>& weights) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * static_cast<double>(weights[i]);
    return sum;
}

// Relative to the largest of all gradients, of those in a tensor of this type: in bf16 also what they are
// made from has been rounded.
inline double slope_tolerance(Type type) {
    return type == Type::bf16 ? 0x1p-7 : 2e-5;
}

// `gradient` against the slopes of f at x: of up to 60 elements, the first and the last among them.
inline void expect_slopes(const std::function<double(const std::vector<double>&)>& f,
                          const std::vector<float>& x, const std::vector<float>& gradient,
                          const std::string& what, double tolerance = slope_tolerance(Type::f32)) {
    ASSERT_EQ(x.size(), gradient.size()) << what;
    double largest = 1e-30;
    for (float value : gradient) largest = std::max(largest, std::abs(static_cast<double>(value)));
    auto at = widened(x);
    Random random(77, x.size());
    for (std::size_t i = 0; i < std::min<std::size_t>(x.size(), 60); ++i) {
        const std::size_t pick =
            x.size() <= 60
                ? i
                : (i == 0 ? 0 : (i == 1 ? x.size() - 1 : random.below(static_cast<std::uint32_t>(x.size()))));
        constexpr double kStep = 1e-5;
        const double kept = at[pick];
        at[pick] = kept + kStep;
        const double above = f(at);
        at[pick] = kept - kStep;
        const double slope = (above - f(at)) / (2 * kStep);
        at[pick] = kept;
        EXPECT_NEAR(static_cast<double>(gradient[pick]), slope, tolerance * largest + 1e-7)
            << what << ", element " << pick;
    }
}

}  // namespace dp::trainer
