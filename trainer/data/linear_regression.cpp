// SPDX-License-Identifier: Apache-2.0
//
// The generated points of the DAWN tutorial: y = 0.7 x + 0.3 at 1000 points in steps of 0.001.
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

Dataset make_linear_regression() {
    constexpr std::int64_t kPoints = 1000;
    std::vector<float> x, y;
    for (std::int64_t i = 0; i < kPoints; ++i) {
        x.push_back(0.001f * static_cast<float>(i));
        y.push_back(0.7f * x.back() + 0.3f);
    }
    const Split points{kPoints, Matrix::of<float>(Type::f32, 1, x), {}, Matrix::of<float>(Type::f32, 1, y)};
    return {points, points, "generated points of y = 0.7 x + 0.3"};
}

}  // namespace dp::trainer
