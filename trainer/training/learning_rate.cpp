// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/learning_rate.hpp"

#include <cmath>
#include <numbers>

namespace dp::trainer {

double rate_at(const LrSchedule& plan, std::int64_t step, std::int64_t steps) {
    const auto at = static_cast<double>(step), all = static_cast<double>(plan.steps.value_or(steps));
    const double warm = plan.warmup * all;
    if (warm > 0 && at <= warm) return plan.rate * at / warm;
    if (plan.shape == LrDecay::constant) return plan.rate;
    if (at >= all) return plan.minimum;
    const double done = (at - warm) / (all - warm);
    const double left =
        plan.shape == LrDecay::linear ? 1 - done : 0.5 * (std::cos(std::numbers::pi * done) + 1);
    return plan.minimum + left * (plan.rate - plan.minimum);
}

}  // namespace dp::trainer
