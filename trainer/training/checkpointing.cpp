// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpointing.hpp"

#include <fmt/format.h>

#include <chrono>

#include "trainer/data/fingerprint.hpp"

namespace dp::trainer {
namespace {

std::vector<Place> places_of(const std::deque<Buffer>& buffers) {
    std::vector<Place> places;
    std::int64_t first = 0;  // one behind the other
    for (const auto& one : buffers) {
        places.push_back({one.name, one.shape, first});
        first += elements_of(one.shape);
    }
    return places;
}

std::vector<Vector> vectors_of(const ParameterSet& parameters, const Optimizer& optimizer) {
    std::vector<Vector> vectors{{"values", parameters.values(), true}};
    for (auto& state : optimizer.state())
        vectors.push_back({state.name, state.numbers, true, state.first, parameters.values().elements()});
    if (parameters.buffers()) vectors.push_back({"buffers", parameters.buffers(), false});
    return vectors;
}

}  // namespace

std::vector<Place> places_of(const ParameterSet& parameters) {
    std::vector<Place> places;
    for (const auto& one : parameters.all()) places.push_back({one.name, one.shape, one.first});
    return places;
}

Continuation continuation_of(const ModelInfo& info, const Model& model, const Dataset& data,
                             const Settings& settings, const Schedule& schedule, std::int64_t world) {
    const ParameterSet& parameters = model.parameters();
    return {{std::string(info.name), places_of(parameters), places_of(parameters.all_buffers()),
             std::string(name_of(settings.optimizer)), settings.seed, data.train.count,
             fingerprint_of(data.train), schedule.global_batch, model.shape()},
            {},
            schedule.total_steps,
            world,
            settings.batch,
            settings.accumulate,
            std::string(name_of(settings.precision)),
            model.looks_at_whole_batch() ? settings.batch * world : 0};
}

Checkpointing::Checkpointing(const ModelInfo& info, const Model& model, const Optimizer& optimizer,
                             const Dataset& data, const Settings& settings, const Schedule& schedule,
                             Device& device, Communicator& communicator, Observer& observer)
    : plan_(settings.checkpoints),
      precision_(settings.precision),
      samples_at_once_(settings.batch * communicator.size()),
      schedule_(schedule),
      observer_(observer),
      speaks_(communicator.rank() == 0),
      checkpointer_(settings.checkpoints,
                    continuation_of(info, model, data, settings, schedule, communicator.size()), data.source,
                    vectors_of(model.parameters(), optimizer), device, communicator),
      stop_(settings.checkpoints.stop_signal, device, communicator) {}

Result<std::optional<Progress>> Checkpointing::restore() {
    observer_.on_phase(Phase::checkpoint);
    const auto restored =
        DP_TRY(checkpointer_.restore([&](const std::string& what) { observer_.on_damaged(what); }));
    if (restored) {
        const Manifest& found = *restored;
        const std::int64_t step = found.progress.step;
        observer_.on_resume({step, checkpointer_.path_of(step), std::string(name_of(precision_)),
                             found.precision, found.stopped_by, samples_at_once_, found.samples_at_once},
                            schedule_);
    }
    observer_.on_phase(Phase::compute);
    if (!restored) return std::nullopt;
    return restored->progress;
}

Result<void> Checkpointing::after_step(std::int64_t step, const std::function<Result<Progress>()>& progress) {
    const auto signal = DP_TRY(stop_.after_step());
    const bool is_last = step == schedule_.total_steps;
    const bool is_due = plan_.every > 0 && step % plan_.every == 0;
    const bool stops = signal != 0 && !is_last;
    if (!is_last && !is_due && !stops) return {};

    const auto now = DP_TRY(progress());
    const auto saved = save(step, now, stops ? name_of_signal(signal) : "");
    if (!saved) return tl::unexpected(saved.error());
    if (!stops) return {};
    if (!speaks_) return fail(*saved ? Fault::stopped : Fault::checkpoint, "");
    const std::string what = fmt::format("{} has come: stopped after step {} of {}", name_of_signal(signal),
                                         step, schedule_.total_steps);
    if (!*saved)
        return fail(Fault::checkpoint,
                    fmt::format("{}, which could not be saved; the same command goes on from the last "
                                "checkpoint before it",
                                what));
    return fail(Fault::stopped,
                fmt::format("{}; the same command goes on from {}, in a batch script after `scontrol requeue "
                            "$SLURM_JOB_ID`",
                            what, checkpointer_.path_of(step).string()));
}

// False if it could not be written, which the training survives.
Result<bool> Checkpointing::save(std::int64_t step, const Progress& progress, const std::string& stopped_by) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    observer_.on_phase(Phase::checkpoint);
    const auto saved = checkpointer_.save(progress, stopped_by);
    observer_.on_phase(Phase::compute);
    if (!saved && saved.error().fault != Fault::checkpoint) return tl::unexpected(saved.error());
    CheckpointReport report{step, checkpointer_.path_of(step),
                            std::chrono::duration<double>(Clock::now() - start).count(), std::nullopt};
    if (!saved) report.problem = saved.error().message;
    observer_.on_checkpoint(report);
    newest_is_saved_ = saved.has_value();
    written_ += newest_is_saved_ ? 1 : 0;
    return newest_is_saved_;
}

}  // namespace dp::trainer
