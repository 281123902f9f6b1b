// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dp::trainer {

// Samples that a rank evaluates at a time: enough for efficient matrix products, and no more than fit 64 MiB
// of activations; if a model is too large for both, at most the training batch.
constexpr std::int64_t kLeastTestBatch = 16, kMostTestBatch = 512;
constexpr std::int64_t kTestActivations = std::int64_t{16} << 20;

Result<Schedule> make_schedule(const Settings& settings, std::int64_t samples, std::int64_t world) {
    if (settings.rate.minimum > settings.rate.rate)
        return fail(Fault::usage, "--min-lr {} is above the learning rate {}; give a smaller one",
                    settings.rate.minimum, settings.rate.rate);
    const std::int64_t of_a_rank = settings.batch * settings.accumulate;
    // Dividing avoids an overflow: --batch-size may be anything up to its limit.
    if (of_a_rank > samples / world) {
        const std::string accumulated =
            settings.accumulate > 1 ? fmt::format(", --accumulate: {}", settings.accumulate) : "";
        const std::int64_t largest = samples / world / settings.accumulate;
        const std::string remedy = largest > 0               ? fmt::format("--batch-size {} or less", largest)
                                   : settings.accumulate > 1 ? "a smaller --accumulate"
                                                             : "more samples";
        return fail(Fault::usage,
                    "a global batch of {} (ranks: {}, --batch-size: {}{}) is larger than the data set of "
                    "{} samples; give {}, or fewer ranks",
                    of_a_rank * world, world, settings.batch, accumulated, samples, remedy);
    }
    Schedule schedule{};
    schedule.global_batch = of_a_rank * world;
    schedule.steps_per_epoch = samples / schedule.global_batch;
    const auto steps_in = [&](std::int64_t epochs) { return schedule.steps_per_epoch * epochs; };
    schedule.total_steps = settings.max_steps.value_or(steps_in(settings.epochs.value_or(1)));
    if (settings.epochs) schedule.total_steps = std::min(schedule.total_steps, steps_in(*settings.epochs));
    if (settings.rate.shape == LrDecay::wsd && settings.rate.wsd_steps) {
        const auto all = static_cast<double>(settings.rate.steps.value_or(schedule.total_steps));
        const double left = std::floor(all - settings.rate.warmup * all + 1e-6);
        if (wsd_decay(settings.rate, all) > left)
            return fail(
                Fault::usage,
                "--lr-wsd-decay-iters {}: the schedule has {:.0f} steps, of which {:.0f} come after the "
                "warm-up; give a smaller one, or a shorter warm-up",
                *settings.rate.wsd_steps, all, left);
    }
    schedule.epochs = (schedule.total_steps + schedule.steps_per_epoch - 1) / schedule.steps_per_epoch;
    return schedule;
}

Result<std::int64_t> accumulate_in(std::int64_t size, std::int64_t first, std::int64_t accumulate,
                                   std::int64_t multiple_of) {
    const std::int64_t batches = first * accumulate;
    const auto does = [&](std::int64_t ranks) { return batches % (ranks * multiple_of) == 0; };
    if (does(size)) return batches / size;
    std::vector<std::int64_t> would_do;
    for (std::int64_t one = 1; one <= first; ++one)
        if (does(one)) would_do.push_back(one);
    return fail(Fault::usage,
                "the world began with {} ranks and now has {}, which cannot split {} micro-batches per step "
                "evenly; these world sizes can: {}",
                first, size, batches, fmt::join(would_do, ", "));
}

std::optional<std::string> steps_left_out(const Settings& settings, const Schedule& schedule) {
    if (!settings.epochs || !settings.max_steps || *settings.max_steps <= schedule.total_steps)
        return std::nullopt;
    return fmt::format(
        "--epochs {} ends this training after {} of the {} steps that --steps asks for; leave out --epochs "
        "to take all of them",
        *settings.epochs, schedule.total_steps, *settings.max_steps);
}

std::int64_t test_batch_of(std::int64_t activations_per_sample, std::int64_t batch) {
    return std::clamp(kTestActivations / std::max<std::int64_t>(activations_per_sample, 1),
                      std::min(kLeastTestBatch, batch), kMostTestBatch);
}

std::int64_t test_batch_of(const Model& model, std::int64_t batch) {
    return model.is_stage() ? batch : test_batch_of(model.activations_per_sample(), batch);
}

}  // namespace dp::trainer
