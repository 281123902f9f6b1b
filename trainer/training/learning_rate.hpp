// SPDX-License-Identifier: Apache-2.0
//
// The learning-rate schedule: a linear warm-up, then constant or decay to a minimum. Counts as Megatron-LM
// does (its optimizer_param_scheduler.py), so that its configurations carry over.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>

namespace dp::trainer {

enum class LrDecay { constant, linear, cosine };

struct LrSchedule {
    LrDecay shape = LrDecay::constant;
    double rate = 1e-3;  // the largest
    double minimum = 0;  // at the last of them; not of `constant`
    double warmup = 0;   // for this part of them, 0 to 1, the rate rises evenly
    // Steps of the whole schedule, after which the rate stays as it is; nullopt: the training's.
    std::optional<std::int64_t> steps = {};
};

// The rate of step number `step` (the first is 1) of a training of `steps`. Pure.
inline double rate_at(const LrSchedule& schedule, std::int64_t step, std::int64_t steps) {
    const auto at = static_cast<double>(step), all = static_cast<double>(schedule.steps.value_or(steps));
    const double warm = schedule.warmup * all;
    if (warm > 0 && at <= warm) return schedule.rate * at / warm;
    if (schedule.shape == LrDecay::constant) return schedule.rate;
    if (at >= all) return schedule.minimum;
    const double done = (at - warm) / (all - warm);
    const double left =
        schedule.shape == LrDecay::linear ? 1 - done : 0.5 * (std::cos(std::numbers::pi * done) + 1);
    return schedule.minimum + left * (schedule.rate - schedule.minimum);
}

}  // namespace dp::trainer
