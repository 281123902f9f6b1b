// SPDX-License-Identifier: Apache-2.0
//
// The learning-rate schedule: a linear warm-up, then constant or decay to a minimum. A step has the rate that Megatron-LM's log shows
// for it (its optimizer_param_scheduler.py). WSD (warm-up, stable, decay): Hu et al., "MiniCPM", 2024, arXiv:2404.06395; the decay is even,
// Megatron-LM's --lr-wsd-decay-style=linear, which is not its default.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>

namespace dp::trainer {

enum class LrDecay { constant, linear, cosine, wsd };

struct LrSchedule {
    LrDecay shape = LrDecay::constant;
    double rate = 1e-3;  // the largest
    double minimum = 0;  // at the last of them; not of `constant`
    double warmup = 0;   // for this part of them, 0 to 1, the rate rises evenly
    // Steps of the whole schedule, after which the rate stays as it is; nullopt: the training's.
    std::optional<std::int64_t> steps = {};
    std::optional<std::int64_t> wsd_steps =
        {};  // of wsd, the last of them, in which it decays; nullopt: a tenth
};

// In how many of the schedule's last steps wsd decays. Pure.
inline double wsd_decay(const LrSchedule& schedule, double all) {
    return schedule.wsd_steps ? static_cast<double>(*schedule.wsd_steps)
                              : std::min(std::ceil(0.1 * all), all - schedule.warmup * all);
}

// The rate of step number `step` (the first is 1) of a training of `steps`. Pure.
inline double rate_at(const LrSchedule& schedule, std::int64_t step, std::int64_t steps) {
    const auto at = static_cast<double>(step), all = static_cast<double>(schedule.steps.value_or(steps));
    const double warm = schedule.warmup * all;
    if (warm > 0 && at <= warm) return schedule.rate * at / warm;
    if (schedule.shape == LrDecay::constant) return schedule.rate;
    if (at >= all) return schedule.minimum;
    const double from = schedule.shape == LrDecay::wsd ? all - wsd_decay(schedule, all) : warm;
    if (at <= from) return schedule.rate;
    const double done = (at - from) / (all - from);
    const double left =
        schedule.shape == LrDecay::cosine ? 0.5 * (std::cos(std::numbers::pi * done) + 1) : 1 - done;
    return schedule.minimum + left * (schedule.rate - schedule.minimum);
}

}  // namespace dp::trainer
