// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/gradient_guard.hpp"

#include <cmath>
#include <utility>

namespace dp::trainer {

GradientGuard::GradientGuard(Device& device, GradientNorm norm, std::optional<double> clip)
    : device_(device), norm_(std::move(norm)), clip_(clip) {}

Result<GradientGuard::Verdict> GradientGuard::look(const Tensor& gradients, const Shard& part) {
    const auto norm = DP_TRY(norm_.of(gradients));
    last_norm_ = norm;
    if (!std::isfinite(norm)) return ++bad_in_a_row_ < kMostBadSteps ? Verdict::bad : Verdict::one_too_many;
    bad_in_a_row_ = 0;
    if (clip_ && norm > *clip_)
        device_.scale(gradients.view(part.first, {part.count}), static_cast<float>(*clip_ / (norm + 1e-6)));
    return Verdict::usable;
}

}  // namespace dp::trainer
