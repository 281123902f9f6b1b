// SPDX-License-Identifier: Apache-2.0
//
// The learning-rate schedule: a linear warm-up, then constant or decay to a minimum. Counts as Megatron-LM
// does (its optimizer_param_scheduler.py), so that its configurations carry over.
#pragma once

#include <cstdint>
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
double rate_at(const LrSchedule& plan, std::int64_t step, std::int64_t steps);

}  // namespace dp::trainer
