// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/choices.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/freezing.hpp"

namespace dp::trainer {
namespace {

constexpr double kSeconds = 0.3;       // of each trial
constexpr double kLongStep = 1;        // seconds, beyond which nothing is tried
constexpr double kUndisturbed = 0.85;  // of the time, this thread had a CPU
constexpr double kNoMoreGain = 1.03;
// A trial whose step takes this part more or less than the training's own part of it says nothing about it.
constexpr double kUnlike = 0.35;

// Why it was not measured is the error's message.
Result<double> seconds_of(const TriedTraining& training, const Settings& settings, const ModelShape& shape) {
    const auto device = open_cpu(training.threads);
    device->set_deterministic(training.deterministic);
    const Trial trial{training.trial.info, shape, training.trial.data, settings};
    const StepTime time = DP_TRY(time_steps(trial, *device, kSeconds));
    if (time.share < kUndisturbed) return fail(Fault::device, "other programs used the CPUs");
    return time.seconds;
}

Result<void> try_batches(const TriedTraining& training, AdviceCase& now) {
    Settings settings = training.trial.settings;
    double rate = static_cast<double>(now.batch) / now.alone;
    double seconds = now.alone;
    for (settings.batch *= 2; settings.batch <= now.largest_batch && 2 * seconds < kLongStep;
         settings.batch *= 2) {
        seconds = DP_TRY(seconds_of(training, settings, training.trial.shape));
        now.other_batches.push_back({settings.batch, seconds});
        const double faster = static_cast<double>(settings.batch) / seconds;
        if (faster < kNoMoreGain * rate) return {};
        rate = faster;
    }
    return {};
}

Result<void> try_without_recompute(const TriedTraining& training, AdviceCase& now) {
    const Trial& trial = training.trial;
    ModelShape shape = trial.shape;
    if (!std::exchange(shape.gpt.recompute, false) || trial.info.name != "gpt") return {};
    const auto model = make_model(trial.info, shape);
    const MemoryCase& now_needed = training.memory;
    const MemoryCase kept{*model, now_needed.settings, now_needed.data, 1, now_needed.device};
    if (estimate_memory(kept).total() > training.available) return {};
    now.without_recompute = DP_TRY(seconds_of(training, trial.settings, shape));
    return {};
}

Result<void> try_other_threads(const TriedTraining& training, AdviceCase& now) {
    const auto trials = DP_TRY(try_threads(training.trial, training.cpus, kSeconds));
    // What others took of the CPUs would look like a gain.
    if (is_disturbed(trials)) return fail(Fault::device, "other programs used the CPUs");
    for (const ThreadTrial& one : trials)
        if (one.threads != training.threads) now.other_threads.push_back({one.threads, one.step.seconds});
    return {};
}

Result<void> try_all(const TriedTraining& training, AdviceCase& now) {
    if (now.step > kLongStep) return fail(Fault::device, "a step takes too long to try others");
    // Alone, it holds all of the optimizer.
    MemoryCase memory = training.memory;
    memory.world = memory.sharing = 1;
    if (estimate_memory(memory).total() > training.available)
        return fail(Fault::device, "memory does not suffice to try others");
    const double alone = DP_TRY(seconds_of(training, training.trial.settings, training.trial.shape));
    const double own = own_part(now);
    if (std::abs(alone - own) > kUnlike * own)
        return fail(Fault::device, "a step tried alone took {:.3g} ms, and {:.3g} ms in the training",
                    alone * 1e3, own * 1e3);
    now.alone = alone;
    now.largest_batch = largest_batch(training.memory, training.available, training.trial.data.train.count);
    DP_TRY(try_batches(training, now));
    DP_TRY(try_without_recompute(training, now));
    DP_TRY(try_other_threads(training, now));
    // Once more: if it was the first trial that others disturbed, all that followed would look like a gain.
    now.alone = std::min(alone, DP_TRY(seconds_of(training, training.trial.settings, training.trial.shape)));
    return {};
}

}  // namespace

std::int64_t largest_batch(const MemoryCase& memory, std::int64_t available, std::int64_t samples) {
    Settings settings = memory.settings;
    MemoryCase larger{memory.model,  settings,       memory.data,       memory.world,
                      memory.device, memory.sharing, memory.recomputing};
    std::int64_t best = settings.batch;
    for (settings.batch *= 2; settings.batch * settings.accumulate * memory.world <= samples;
         settings.batch *= 2) {
        if (estimate_memory(larger).total() > available) break;
        best = settings.batch;
    }
    return best;
}

void try_choices(const TriedTraining& training, AdviceCase& now) {
    const auto tried = try_all(training, now);
    if (!tried) now.untried = tried.error().message;
}

}  // namespace dp::trainer
