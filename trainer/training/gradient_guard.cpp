// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/gradient_guard.hpp"

#include <cmath>

namespace dp::trainer {

double norm_of(const Tensor& gradients, Device& device, const Tensor& sums) {
    device.square_sum(gradients, sums);
    return std::sqrt(device.values_of<double>(sums.first_rows(1))[0]);
}

GradientGuard::GradientGuard(Device& device, std::optional<double> clip)
    : device_(device), clip_(clip), sums_(device.make(Type::f64, {kSquareSums})) {}

GradientGuard::Verdict GradientGuard::look(const Tensor& gradients) {
    norm_ = norm_of(gradients, device_, sums_);
    if (!std::isfinite(norm_)) return ++bad_in_a_row_ < kMostBadSteps ? Verdict::bad : Verdict::one_too_many;
    bad_in_a_row_ = 0;
    if (clip_ && norm_ > *clip_) device_.scale(gradients, static_cast<float>(*clip_ / (norm_ + 1e-6)));
    return Verdict::usable;
}

}  // namespace dp::trainer
