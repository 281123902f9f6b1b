// SPDX-License-Identifier: Apache-2.0
//
// The training loop: see training.hpp. train_step.hpp has the step.
#include "trainer/training/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "trainer/data/sampler.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/training/checkpointing.hpp"
#include "trainer/training/evaluation.hpp"
#include "trainer/training/global_metrics.hpp"
#include "trainer/training/train_step.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Places the model on the device, with room for training and test batches.
Model& placed(Model& model, const Settings& settings, Device& device) {
    const std::int64_t rows =
        std::max(settings.batch, test_batch_of(model.activations_per_sample(), settings.batch));
    model.place(device, settings.seed, rows, type_of(settings.precision));
    device.reserve_convolution_scratch(model.convolution_scratch(device, rows));
    if (settings.precision == Precision::bf16) device.reserve_copies(model.widest_operation(rows));
    return model;
}

// A run's state; train() below shows the sequence.
class Run {
 public:
    Run(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
        const Schedule& schedule, Device& device, Communicator& communicator, Observer& observer)
        : info_(info),
          settings_(settings),
          schedule_(schedule),
          device_(device),
          observer_(observer),
          sampler_(data.train.count, settings.batch, communicator.rank(), communicator.size(), settings.seed),
          ranks_(placed(model, settings, device), device, communicator, observer),
          train_step_(model, data.train, settings, schedule, device, communicator, observer),
          evaluation_(model, data.test, settings, device, communicator, observer),
          log_(settings.log_every, settings.log_single) {
        if (!settings.checkpoints.directory.empty())
            checkpointing_.emplace(info, model, train_step_.optimizer(), data, settings, schedule, device,
                                   communicator, observer);
    }

    // Resumes from a checkpoint, if there is one.
    Result<void> restore() {
        if (!checkpointing_) return {};
        const auto saved = DP_TRY(checkpointing_->restore());
        if (!saved) return {};
        resumed_ = *saved;
        return train_step_.resume(resumed_.step, resumed_.skipped, resumed_.bad_in_a_row);
    }

    // The epoch of the last step: its end may not have been reported.
    std::int64_t first_epoch() const {
        return std::max<std::int64_t>(resumed_.step - 1, 0) / schedule_.steps_per_epoch + 1;
    }

    // Counts what the epochs' reports do not include.
    void count(Outcome& outcome) const {
        outcome.skipped = train_step_.skipped();
        outcome.resumed = resumed_.step;
        if (!checkpointing_) return;
        outcome.checkpoints = checkpointing_->written();
        outcome.end_is_saved = checkpointing_->newest_is_saved();
    }

    Result<EpochReport> epoch(std::int64_t number) {
        const auto start = Clock::now();
        const Tensor indices = order_of(number);
        const std::int64_t before = (number - 1) * schedule_.steps_per_epoch;  // steps of earlier epochs
        const std::int64_t steps = std::min(schedule_.steps_per_epoch, schedule_.total_steps - before);
        // Part of the epoch of a checkpoint was done before.
        const std::int64_t earlier = std::max<std::int64_t>(resumed_.step - before, 0);
        const Progress begun = earlier > 0 ? resumed_ : Progress{};
        train_step_.begin_epoch({begun.loss, begun.correct});
        skipped_before_ = train_step_.skipped() - begun.skipped_in_epoch;
        if (settings_.log_every > 0 && earlier > 0) log_.begin(counts(resumed_.step));
        const std::int64_t a_step = settings_.batch * settings_.accumulate;
        for (std::int64_t step = earlier; step < steps; ++step) {
            const StepPlace place{number, step + 1, before + step + 1};
            DP_TRY(one_step(indices.view(step * a_step, {a_step}), place));
        }
        if (settings_.log_every > 0) earlier_loss_ = counts(0).loss;
        const auto trained = DP_TRY(ranks_.total(train_step_.metrics()));
        const auto samples = static_cast<double>((steps - earlier) * schedule_.global_batch);
        const std::int64_t skipped = train_step_.skipped() - skipped_before_;
        const auto counted = static_cast<double>((steps - skipped) * schedule_.global_batch);
        const double seconds = seconds_since(start);

        const StepLog::PausedTimer aside(log_);
        const auto tested = DP_TRY(evaluation_.test(ranks_));
        EpochReport report{number,  trained.loss / counted, tested.loss, std::nullopt,
                           seconds, samples / seconds,      skipped};
        if (info_.classifies) report.test_accuracy = tested.correct;
        if (!std::isfinite(report.loss) || !std::isfinite(report.test_loss))
            return ranks_.fail(
                fmt::format("epoch {}: the loss is NaN or infinite; give a smaller --lr than {}", number,
                            settings_.rate.rate));
        observer_.on_epoch(report, schedule_);
        return report;
    }

    // Repeats the first step.
    Result<void> repeat(std::int64_t steps) {
        const Tensor first = order_of(1).view(0, {settings_.batch * settings_.accumulate});
        for (std::int64_t step = 1; step <= steps; ++step) {
            DP_TRY(train_step_.step(first, std::min(step, schedule_.total_steps), ranks_));
            DP_TRY(device_.status());
            observer_.on_step(1, step, schedule_);
        }
        return {};
    }

 private:
    const ModelInfo& info_;
    const Settings& settings_;
    const Schedule& schedule_;
    Device& device_;
    Observer& observer_;
    DistributedSampler sampler_;
    GlobalMetrics ranks_;
    TrainStep train_step_;
    Evaluation evaluation_;
    StepLog log_;
    double earlier_loss_ = 0;                     // this rank's, of the epochs before this one
    std::int64_t skipped_before_ = 0;             // this epoch
    Progress resumed_;                            // what was made before this training went on
    std::optional<Checkpointing> checkpointing_;  // where there are checkpoints

    // This rank's samples of an epoch.
    Tensor order_of(std::int64_t epoch) {
        observer_.on_phase(Phase::load);
        const auto indices = sampler_.epoch(static_cast<std::uint64_t>(epoch));
        return device_.copy_of<std::int32_t>(Type::i32, {static_cast<std::int64_t>(indices.size())}, indices);
    }

    // A step with its reports and checkpoints.
    Result<void> one_step(const Tensor& indices, const StepPlace& place) {
        const bool is_told = log_.is_due(place);
        if (is_told && log_.is_single()) log_.begin(counts(place.number - 1));
        DP_TRY(train_step_.step(indices, place.number, ranks_));
        DP_TRY(device_.status());
        observer_.on_step(place.epoch, place.step, schedule_);
        if (is_told) {
            DP_TRY(tell(place));
        }
        if (!checkpointing_) return {};
        std::optional<StepLog::PausedTimer> aside;
        return checkpointing_->after_step(place.number, [&] {
            aside.emplace(log_);
            return progress(place.number);
        });
    }

    // The progress after `step` steps. Every rank calls.
    Result<Progress> progress(std::int64_t step) {
        const Metrics epoch = train_step_.metrics();
        return Progress{step,
                        train_step_.skipped(),
                        train_step_.skipped() - skipped_before_,
                        train_step_.bad_in_a_row(),
                        epoch.loss,
                        epoch.correct};
    }

    // This rank's counts after `steps` steps.
    StepCounts counts(std::int64_t steps) {
        return {steps, train_step_.skipped(), earlier_loss_ + train_step_.metrics().loss};
    }

    // Reports the steps since the last report to the observer. Every rank calls.
    Result<void> tell(const StepPlace& place) {
        const StepCounts since = log_.since(counts(place.number));
        const double seconds = log_.seconds();
        const Result<double> norm = train_step_.gradient_norm();
        if (!norm) return tl::unexpected(norm.error());
        const auto all = DP_TRY(ranks_.total({since.loss, 0}));
        const auto samples = static_cast<double>((since.steps - since.skipped) * schedule_.global_batch);
        observer_.on_log({place, all.loss / samples, seconds / static_cast<double>(since.steps),
                          rate_at(settings_.rate, place.number, schedule_.total_steps), *norm, since.skipped},
                         schedule_);
        log_.begin(counts(place.number));
        return {};
    }
};

}  // namespace

Result<void> repeat_step(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                         Device& device, Communicator& communicator, std::int64_t steps, Observer& observer) {
    const auto schedule = DP_TRY(make_schedule(settings, data.train.count, communicator.size()));
    Run run(info, model, data, settings, schedule, device, communicator, observer);
    DP_TRY(device.status());
    return run.repeat(steps);
}

Result<Outcome> train(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                      Device& device, Communicator& communicator, Observer& observer) {
    const auto schedule = DP_TRY(make_schedule(settings, data.train.count, communicator.size()));

    Run run(info, model, data, settings, schedule, device, communicator, observer);
    DP_TRY(device.status());
    Outcome outcome{};
    outcome.schedule = schedule;
    DP_TRY(run.restore());
    DP_TRY(all_or_none(observer.on_begin(), device, communicator));
    for (std::int64_t number = run.first_epoch(); number <= schedule.epochs; ++number) {
        auto report = DP_TRY(run.epoch(number));
        outcome.last = report;
        outcome.train_seconds += report.seconds;
    }
    run.count(outcome);
    auto slowest = DP_TRY(largest_of_all_ranks(outcome.train_seconds, device, communicator));
    outcome.train_seconds = slowest;
    outcome.samples_per_second =
        static_cast<double>((schedule.total_steps - outcome.resumed) * schedule.global_batch) /
        outcome.train_seconds;
    outcome.parameters = model.parameters().download(device);
    outcome.parameters_hash = hash_of(outcome.parameters);
    auto equal = DP_TRY(equal_on_all_ranks(outcome.parameters_hash, device, communicator));
    outcome.equal_on_all_ranks = equal;
    return outcome;
}

}  // namespace dp::trainer
