// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpointing.hpp"

#include <fmt/format.h>

#include <chrono>

#include "trainer/base/seconds_since.hpp"

namespace dp::trainer {
namespace {

std::vector<Place> places_of(const std::deque<Buffer>& buffers) {
    std::vector<Place> places;
    std::int64_t first = 0;  // one behind the other
    for (const auto& one : buffers) {
        places.push_back({one.name, one.shape, first, false});
        first += elements_of(one.shape);
    }
    return places;
}

// In the vectors of the whole model.
std::vector<Place> places_of(const ParameterSet& parameters) {
    std::vector<Place> places;
    for (const auto& one : parameters.all())
        places.push_back({one.name, one.part.whole, one.whole_first, one.is_frozen});
    return places;
}

std::vector<Vector> vectors_of(const Optimizer& optimizer, const ParameterSet& parameters) {
    std::vector<Vector> vectors;
    for (auto& state : optimizer.state())
        vectors.push_back({state.name, state.numbers, true, state.first, parameters.whole_learned_count(),
                           parameters.learned_count()});
    return vectors;
}

std::vector<Vector> vectors_of(const ParameterSet& parameters, const Optimizer& optimizer) {
    std::vector<Vector> vectors{
        {"values", parameters.values(), true, 0, parameters.whole_padded_count(), parameters.padded_count()}};
    for (auto& state : vectors_of(optimizer, parameters)) vectors.push_back(std::move(state));
    if (parameters.buffers()) vectors.push_back({"buffers", parameters.buffers(), false});
    return vectors;
}

}  // namespace

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

Checkpointing::Checkpointing(const TrainingContext& run, const Optimizer& optimizer, const PeerCopy* copy)
    : run_(run),
      checkpointer_(
          run.settings.checkpoints,
          continuation_of(run.info, run.model, run.data, run.settings, run.schedule, run.ranks.data.size()),
          run.data.source, placed_parts(run.model.parameters()),
          vectors_of(run.model.parameters(), optimizer),
          copy == nullptr ? std::vector<Vector>() : vectors_of(copy->optimizer(), run.model.parameters()),
          run.device, run.ranks),
      stop_(run.settings.checkpoints.stop_signal, run.device, run.ranks.world) {}

Result<std::optional<Progress>> Checkpointing::restore() {
    run_.observer.on_phase(Phase::checkpoint);
    const auto found =
        DP_TRY(checkpointer_.restore([&](const std::string& what) { run_.observer.on_damaged(what); }));
    run_.observer.on_phase(Phase::compute);
    if (!found) return std::nullopt;
    const std::int64_t step = saved_step_ = found->progress.step;
    run_.observer.on_resume(
        {step, checkpointer_.path_of(step), std::string(name_of(run_.settings.precision)), found->precision,
         found->stopped_by, run_.settings.batch * run_.ranks.data.size(), found->samples_at_once},
        run_.schedule);
    return found->progress;
}

Result<void> Checkpointing::prepare() {
    return checkpointer_.prepare_directory([&](const std::string& what) { run_.observer.on_damaged(what); });
}

Result<void> Checkpointing::after_step(std::int64_t step, const std::function<Progress()>& progress,
                                       bool is_end) {
    const auto [signal, all_are_free] = DP_TRY(stop_.after_step(checkpointer_.is_writing()));
    if (all_are_free) DP_TRY(finish());
    const bool is_last = is_end || step == run_.schedule.total_steps;
    const std::int64_t every = run_.settings.checkpoints.every;
    const bool is_due = every > 0 && step % every == 0;
    const bool stops = signal != 0 && !is_last;
    if (!is_last && !is_due && !stops) return {};
    DP_TRY(finish());  // one of an earlier step
    if (run_.settings.checkpoints.is_async && !is_last && !stops) return begin(step, progress());

    const bool saved = DP_TRY(save(step, progress(), stops ? name_of_signal(signal) : ""));
    if (!stops) return {};
    const Fault fault = saved ? Fault::stopped : Fault::checkpoint;
    if (run_.ranks.world.rank() != 0) return fail(fault, "");
    const std::string what = fmt::format("received {}: stopped after step {} of {}", name_of_signal(signal),
                                         step, run_.schedule.total_steps);
    if (!saved)
        return fail(fault, what +
                               ", which could not be saved; the same command continues from the last "
                               "checkpoint before it");
    return fail(fault, fmt::format("{}; the same command continues from {}, in a batch script after "
                                   "`scontrol requeue $SLURM_JOB_ID`",
                                   what, checkpointer_.path_of(step).string()));
}

Result<void> Checkpointing::at_end(std::int64_t step, const Progress& progress) {
    DP_TRY(finish());
    if (saved_step_ != step) DP_TRY(save(step, progress, ""));
    return {};
}

Result<void> Checkpointing::catch_up(const Progress& progress) {
    std::error_code error;
    const auto is_missing = [&](std::int64_t step) {
        return step > 0 && !std::filesystem::exists(checkpointer_.path_of(step), error);
    };
    // That of the step that was due last, too: what was written in the background ended with the rank.
    const CheckpointPlan& plan = run_.settings.checkpoints;
    const std::int64_t due = plan.is_async && plan.every > 0 ? progress.step / plan.every * plan.every : 0;
    const bool is_first = run_.ranks.world.rank() == 0;
    const double lacks =
        DP_TRY(largest_of_all_ranks(is_first && is_missing(progress.step) ? (is_missing(due) ? 2 : 1) : 0,
                                    run_.device, run_.ranks.world));
    if (lacks == 0) return {};
    if (lacks == 2 && progress.step % plan.every != 0) return begin(progress.step, progress);
    return after_step(progress.step, [&] { return progress; });
}

// False if it could not be written, which the training survives.
Result<bool> Checkpointing::save(std::int64_t step, const Progress& progress, const std::string& stopped_by) {
    const auto start = std::chrono::steady_clock::now();
    run_.observer.on_phase(Phase::checkpoint);
    const auto saved = checkpointer_.save(progress, stopped_by);
    run_.observer.on_phase(Phase::compute);
    return report(step, saved, seconds_since(start), std::nullopt);
}

Result<void> Checkpointing::begin(std::int64_t step, const Progress& progress) {
    const auto start = std::chrono::steady_clock::now();
    run_.observer.on_phase(Phase::checkpoint);
    const auto copied = checkpointer_.begin(progress);
    run_.observer.on_phase(Phase::compute);
    if (!copied) return report(step, copied, seconds_since(start), std::nullopt).map([](bool) {});
    begun_ = {step, start, seconds_since(start)};
    return {};
}

// Of what has begun, if anything has. Every rank calls.
Result<void> Checkpointing::finish() {
    if (!begun_) return {};
    const Begun begun = *begun_;
    begun_.reset();
    const auto start = std::chrono::steady_clock::now();
    run_.observer.on_phase(Phase::checkpoint);
    const auto saved = checkpointer_.finish();
    run_.observer.on_phase(Phase::compute);
    return report(begun.step, saved, seconds_since(begun.at), begun.seconds + seconds_since(start))
        .map([](bool) {});
}

Result<bool> Checkpointing::report(std::int64_t step, const Result<void>& saved, double seconds,
                                   std::optional<double> held) {
    if (!saved && saved.error().fault != Fault::checkpoint) return tl::unexpected(saved.error());
    CheckpointReport report{step, checkpointer_.path_of(step), seconds, held, std::nullopt};
    if (!saved) report.problem = saved.error().message;
    run_.observer.on_checkpoint(report);
    newest_is_saved_ = saved.has_value();
    written_ += newest_is_saved_ ? 1 : 0;
    if (newest_is_saved_) saved_step_ = step;
    return newest_is_saved_;
}

}  // namespace dp::trainer
