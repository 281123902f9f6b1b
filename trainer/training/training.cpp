// SPDX-License-Identifier: Apache-2.0
//
// The training loop: see training.hpp.
#include "trainer/training/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "trainer/checkpoint/saving.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/parallel/gradient_reducer.hpp"
#include "trainer/parallel/partition.hpp"
#include "trainer/random.hpp"
#include "trainer/training/device_samples.hpp"
#include "trainer/training/gradient_guard.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

Tensor upload_indices(Device& device, const std::vector<std::int32_t>& indices) {
    return device.copy_of<std::int32_t>(Type::i32, {static_cast<std::int64_t>(indices.size())}, indices);
}

struct Metrics {
    double loss = 0;  // sums over samples
    double correct = 0;
};

// Everything that a run holds; train() below is its story.
class Run {
 public:
    Run(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
        const Schedule& schedule, Device& device, Communicator& communicator, Observer& observer)
        : info_(info),
          model_(model),
          settings_(settings),
          schedule_(schedule),
          device_(device),
          communicator_(communicator),
          observer_(observer),
          sampler_(data.train.count, settings.batch * settings.accumulate, communicator.rank(),
                   communicator.size(), settings.seed),
          test_count_(data.test.count),
          test_shard_(shard_of(data.test.count, communicator.rank(), communicator.size())),
          test_batch_(test_batch_of(model.activations_per_sample(), settings.batch)),
          train_samples_(device, data.train, 0, data.train.count, settings.batch,
                         type_of(settings.precision)),
          test_samples_(device, data.test, test_shard_.first, test_shard_.count, test_batch_,
                        type_of(settings.precision)),
          metrics_(device.make(Type::f64, {2})),
          log_(settings.log_every, settings.log_single) {
        const std::int64_t rows = std::max(settings.batch, test_batch_);
        model.place(device, settings.seed, rows, type_of(settings.precision));
        if (settings.precision == Precision::bf16) device.reserve_copies(model.widest_operation(rows));
        const std::int64_t values = model.parameters().values().elements();
        const auto node = communicator.node_share();
        node_part_ = node ? node->part_of(values) : Shard{0, values};
        const OptimizerPlan plan{settings.optimizer, settings.weight_decay, settings.constants};
        optimizer_ =
            settings.shard_optimizer
                ? make_optimizer(plan, device, shard_of(values, communicator.rank(), communicator.size()))
                : make_optimizer(plan, device, node_part_, values);
        reducer_.emplace(model.parameters(), device, communicator, buckets_of(model.parameters()));
        if (settings.accumulate > 1)
            gradient_sum_ = device.make_to_sum(Type::f32, model.parameters().gradients().shape());
        if (settings.log_every > 0) log_metrics_ = device.make(Type::f64, {2});
        if (settings.clip || settings.skip_bad_steps) {
            guard_.emplace(device, GradientNorm(device, communicator, values), settings.clip);
            step_metrics_ = device.make(Type::f64, {2});
        } else if (settings.log_every > 0) {
            norm_.emplace(device, communicator, values);
        }
        std::vector<std::int32_t> order(static_cast<std::size_t>(test_shard_.count));
        std::iota(order.begin(), order.end(), 0);
        test_order_ = upload_indices(device, order);
        if (!settings.checkpoints.directory.empty())
            saving_.emplace(info, model, *optimizer_, data, settings, schedule, device, communicator,
                            observer);
    }

    // Goes on from a checkpoint, where there is one.
    Result<void> restore() {
        if (!saving_) return {};
        const auto saved = saving_->restore();
        if (!saved) return tl::make_unexpected(saved.error());
        if (!*saved) return {};
        if (auto shared = share_values(); !shared) return shared;
        resumed_ = **saved;
        skipped_ = resumed_.skipped;
        optimizer_->resume(resumed_.step - resumed_.skipped);
        if (guard_) guard_->resume(resumed_.bad_in_a_row);
        return {};
    }

    // The epoch of the last step that was made: its end may not have been reported.
    std::int64_t first_epoch() const {
        return std::max<std::int64_t>(resumed_.step - 1, 0) / schedule_.steps_per_epoch + 1;
    }

    // What the epochs' reports do not say.
    void count(Outcome& outcome) const {
        outcome.skipped = skipped_;
        outcome.resumed = resumed_.step;
        if (!saving_) return;
        outcome.checkpoints = saving_->written();
        outcome.end_is_saved = saving_->newest_is_saved();
    }

    Result<EpochReport> epoch(std::int64_t number) {
        const auto start = Clock::now();
        observer_.on_phase(Phase::load);
        const Tensor indices = upload_indices(device_, sampler_.epoch(static_cast<std::uint64_t>(number)));
        const std::int64_t steps = std::min(schedule_.steps_per_epoch,
                                            schedule_.total_steps - (number - 1) * schedule_.steps_per_epoch);
        // Of the epoch in which a checkpoint was written, a part has been made.
        const std::int64_t earlier =
            std::max<std::int64_t>(resumed_.step - (number - 1) * schedule_.steps_per_epoch, 0);
        const Progress begun = earlier > 0 ? resumed_ : Progress{};
        guarded_ = {begun.loss, begun.correct};
        device_.upload(std::array{begun.loss, begun.correct}.data(), metrics_);
        skipped_before_ = skipped_ - begun.skipped_in_epoch;
        if (settings_.log_every > 0 && earlier > 0) log_.begin(counts(resumed_.step));
        const std::int64_t a_step = settings_.batch * settings_.accumulate;
        for (std::int64_t step = earlier; step < steps; ++step) {
            const StepPlace place{number, step + 1, (number - 1) * schedule_.steps_per_epoch + step + 1};
            const bool is_told = log_.is_due(place);
            if (is_told && log_.is_single()) log_.begin(counts(place.number - 1));
            if (auto made = make_step(indices.view(step * a_step, {a_step}), place.number); !made)
                return tl::make_unexpected(made.error());
            if (auto sound = device_.status(); !sound) return tl::make_unexpected(sound.error());
            observer_.on_step(number, step + 1, schedule_);
            if (is_told) {
                if (auto told = tell(place); !told) return tl::make_unexpected(told.error());
            }
            if (saving_) {
                auto saved = saving_->after_step(place.number, [&] { return progress(place.number); });
                if (!saved) return tl::make_unexpected(saved.error());
            }
        }
        if (settings_.log_every > 0) earlier_loss_ = counts(0).loss;
        if (guard_) device_.upload(std::array{guarded_.loss, guarded_.correct}.data(), metrics_);
        auto trained = total(metrics_);
        if (!trained) return tl::make_unexpected(trained.error());
        const auto samples = static_cast<double>((steps - earlier) * schedule_.global_batch);
        const std::int64_t skipped = skipped_ - skipped_before_;
        const auto counted = static_cast<double>((steps - skipped) * schedule_.global_batch);
        const double seconds = seconds_since(start);

        auto tested = test();
        if (!tested) return tl::make_unexpected(tested.error());
        const auto tests = static_cast<double>(test_count_);
        EpochReport report{
            number, trained->loss / counted, tested->loss / tests, std::nullopt, seconds, samples / seconds,
            skipped};
        if (info_.classifies) report.test_accuracy = tested->correct / tests;
        if (!std::isfinite(report.loss) || !std::isfinite(report.test_loss))
            return alike(fmt::format("epoch {}: the loss is no longer a number; give a smaller --lr than {}",
                                     number, settings_.rate.rate));
        observer_.on_epoch(report, schedule_);
        return report;
    }

    // The first step again and again.
    Result<void> repeat(std::int64_t steps) {
        observer_.on_phase(Phase::load);
        const Tensor indices = upload_indices(device_, sampler_.epoch(1));
        for (std::int64_t step = 1; step <= steps; ++step) {
            const Tensor first = indices.view(0, {settings_.batch * settings_.accumulate});
            if (auto made = make_step(first, std::min(step, schedule_.total_steps)); !made) return made;
            if (auto sound = device_.status(); !sound) return sound;
            observer_.on_step(1, step, schedule_);
        }
        return {};
    }

 private:
    const ModelInfo& info_;
    Model& model_;
    const Settings& settings_;
    const Schedule& schedule_;
    Device& device_;
    Communicator& communicator_;
    Observer& observer_;
    DistributedSampler sampler_;
    std::int64_t test_count_;
    Shard test_shard_;
    std::int64_t test_batch_;
    DeviceSamples train_samples_;
    DeviceSamples test_samples_;
    Tensor metrics_;
    Tensor test_order_;
    std::unique_ptr<Optimizer> optimizer_;
    std::optional<GradientReducer> reducer_;
    Tensor gradient_sum_;    // where batches are accumulated
    Tensor step_gradients_;  // what the last step was made from: the gradients of all batches and ranks
    Shard node_part_;        // of the values, that this rank looks after for its node
    // Where steps are guarded: the guard, a step's metrics, and those of the epoch's good steps.
    std::optional<GradientGuard> guard_;
    Tensor step_metrics_;
    Metrics guarded_;
    std::int64_t skipped_ = 0;
    StepLog log_;
    Tensor log_metrics_;
    std::optional<GradientNorm> norm_;  // for the log, where there is no guard that knows it
    double earlier_loss_ = 0;           // this rank's, of the epochs before this one
    std::int64_t skipped_before_ = 0;   // this epoch
    Progress resumed_;                  // what was made before this training went on
    std::optional<Saving> saving_;      // where there are checkpoints

    // What all ranks see in the same numbers, and stop at: one of them says it.
    tl::unexpected<Error> alike(std::string message) const {
        return fail(Fault::training, communicator_.rank() == 0 ? std::move(message) : "");
    }

    // `number`: of the step in the training, from 1.
    Result<void> make_step(const Tensor& indices, std::int64_t number) {
        const bool sums = settings_.accumulate > 1;
        const Tensor& metrics = guard_ ? step_metrics_ : metrics_;
        if (guard_) device_.zero(step_metrics_);
        if (sums) device_.zero(gradient_sum_);
        for (std::int64_t part = 0; part < settings_.accumulate; ++part) {
            observer_.on_phase(Phase::load);
            Batch batch = train_samples_.gather(indices.view(part * settings_.batch, {settings_.batch}));
            batch.draw = draw_of(number - 1, part);
            observer_.on_phase(Phase::compute);
            // Each rank's gradient is its part of the mean over the global batch: their sum is that mean.
            // Those of the last batch are reduced while they are made.
            const bool is_last = part + 1 == settings_.accumulate;
            if (is_last) reducer_->begin(sums ? gradient_sum_ : Tensor{});
            model_.forward_backward(batch, 1.0f / static_cast<float>(schedule_.global_batch), metrics);
            if (sums && !is_last) device_.add(model_.parameters().gradients(), gradient_sum_);
        }
        observer_.on_phase(Phase::communication);
        const auto gradients = reducer_->finish();
        if (!gradients) return tl::make_unexpected(gradients.error());
        step_gradients_ = *gradients;
        observer_.on_phase(Phase::compute);
        if (guard_) {
            const auto verdict = guard_->look(*gradients, optimizer_->part());
            if (!verdict) return tl::make_unexpected(verdict.error());
            if (*verdict == GradientGuard::Verdict::one_too_many)
                return alike(
                    fmt::format("step {}: for {} steps in a row the gradients were no numbers; give a "
                                "smaller --lr than {}",
                                number, kMostBadSteps, settings_.rate.rate));
            if (*verdict == GradientGuard::Verdict::bad) {
                ++skipped_;
                return {};
            }
            const auto sum = device_.values_of<double>(step_metrics_);
            guarded_.loss += sum[0];
            guarded_.correct += sum[1];
        }
        optimizer_->step(model_.parameters(), *gradients,
                         rate_at(settings_.rate, number, schedule_.total_steps));
        if (settings_.shard_optimizer) {
            if (auto gathered = gather_values(); !gathered) return gathered;
        }
        return share_values();
    }

    // The values have changed: then the ranks of this node work with them.
    Result<void> share_values() {
        model_.parameters().refresh_working(device_, node_part_);
        if (!communicator_.node_share()) return {};
        observer_.on_phase(Phase::communication);
        auto met = communicator_.meet_on_node();
        observer_.on_phase(Phase::compute);
        return met;
    }

    // Each rank has updated its part of them.
    Result<void> gather_values() {
        observer_.on_phase(Phase::communication);
        auto gathered = communicator_.all_gather(model_.parameters().values());
        observer_.on_phase(Phase::compute);
        return gathered;
    }

    // After so many steps. Every rank calls.
    Result<Progress> progress(std::int64_t step) {
        // As at the end of an epoch; the ranks' mean, which is what they test, goes on the same.
        if (auto shared = share_buffers(); !shared) return tl::make_unexpected(shared.error());
        const auto sums = device_.values_of<double>(metrics_);
        const Metrics epoch = guard_ ? guarded_ : Metrics{sums[0], sums[1]};
        return Progress{
            step,       skipped_,     skipped_ - skipped_before_, guard_ ? guard_->bad_in_a_row() : 0,
            epoch.loss, epoch.correct};
    }

    // This rank's, after so many steps.
    StepCounts counts(std::int64_t steps) {
        const double here = guard_ ? guarded_.loss : device_.values_of<double>(metrics_)[0];
        return {steps, skipped_, earlier_loss_ + here};
    }

    // The observer, of the steps since the log began; every rank calls.
    Result<void> tell(const StepPlace& place) {
        const StepCounts since = log_.since(counts(place.number));
        const double seconds = log_.seconds();
        const Result<double> norm = guard_ ? guard_->norm() : norm_->of(step_gradients_);
        if (!norm) return tl::make_unexpected(norm.error());
        device_.upload(std::array{since.loss, 0.0}.data(), log_metrics_);
        auto all = total(log_metrics_);
        if (!all) return tl::make_unexpected(all.error());
        const auto samples = static_cast<double>((since.steps - since.skipped) * schedule_.global_batch);
        observer_.on_log({place, all->loss / samples, seconds / static_cast<double>(since.steps),
                          rate_at(settings_.rate, place.number, schedule_.total_steps), *norm, since.skipped},
                         schedule_);
        log_.begin(counts(place.number));
        return {};
    }

    // Parameters and sampler draw from the streams up to 2^33.
    BatchDraw draw_of(std::int64_t step, std::int64_t part) const {
        const auto stream = (std::uint64_t{1} << 33) + static_cast<std::uint64_t>(step);
        return {Random(settings_.seed, stream).bits(),
                (communicator_.rank() * settings_.accumulate + part) * settings_.batch};
    }

    // The metrics of all ranks together.
    Result<Metrics> total(const Tensor& metrics) {
        observer_.on_phase(Phase::communication);
        if (auto done = communicator_.all_reduce(metrics, Reduction::sum); !done) {
            return tl::make_unexpected(done.error());
        }
        const auto sums = device_.values_of<double>(metrics);
        if (auto sound = device_.status(); !sound) return tl::make_unexpected(sound.error());
        const auto targets = static_cast<double>(model_.targets_per_sample());
        return Metrics{sums[0] / targets, sums[1] / targets};
    }

    // Every rank then has the mean of all ranks' running statistics: they test the same model.
    Result<void> share_buffers() {
        const Tensor& buffers = model_.parameters().buffers();
        if (!buffers) return {};
        observer_.on_phase(Phase::communication);
        if (auto done = communicator_.all_reduce(buffers, Reduction::sum); !done) return done;
        device_.scale(buffers, 1.0f / static_cast<float>(communicator_.size()));
        return {};
    }

    Result<Metrics> test() {
        if (auto shared = share_buffers(); !shared) return tl::make_unexpected(shared.error());
        device_.zero(metrics_);
        for (std::int64_t first = 0; first < test_shard_.count; first += test_batch_) {
            const std::int64_t rows = std::min(test_batch_, test_shard_.count - first);
            observer_.on_phase(Phase::load);
            const Batch batch = test_samples_.gather(test_order_.view(first, {rows}));
            observer_.on_phase(Phase::compute);
            model_.evaluate(batch, metrics_);
        }
        return total(metrics_);
    }
};

}  // namespace

Result<void> repeat_step(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                         Device& device, Communicator& communicator, std::int64_t steps, Observer& observer) {
    const auto schedule = make_schedule(settings, data.train.count, communicator.size());
    if (!schedule) return tl::make_unexpected(schedule.error());
    Run run(info, model, data, settings, *schedule, device, communicator, observer);
    if (auto sound = device.status(); !sound) return sound;
    return run.repeat(steps);
}

Result<Outcome> train(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                      Device& device, Communicator& communicator, Observer& observer) {
    const auto schedule = make_schedule(settings, data.train.count, communicator.size());
    if (!schedule) return tl::make_unexpected(schedule.error());

    Run run(info, model, data, settings, *schedule, device, communicator, observer);
    if (auto sound = device.status(); !sound) return tl::make_unexpected(sound.error());
    Outcome outcome{};
    outcome.schedule = *schedule;
    if (auto restored = run.restore(); !restored) return tl::make_unexpected(restored.error());
    for (std::int64_t number = run.first_epoch(); number <= schedule->epochs; ++number) {
        auto report = run.epoch(number);
        if (!report) return tl::make_unexpected(report.error());
        outcome.last = *report;
        outcome.train_seconds += report->seconds;
    }
    run.count(outcome);
    auto slowest = largest_of_all_ranks(outcome.train_seconds, device, communicator);
    if (!slowest) return tl::make_unexpected(slowest.error());
    outcome.train_seconds = *slowest;
    outcome.samples_per_second =
        static_cast<double>((schedule->total_steps - outcome.resumed) * schedule->global_batch) /
        outcome.train_seconds;
    outcome.parameters = model.parameters().download(device);
    outcome.parameters_hash = hash_of(outcome.parameters);
    auto equal = equal_on_all_ranks(outcome.parameters_hash, device, communicator);
    if (!equal) return tl::make_unexpected(equal.error());
    outcome.equal_on_all_ranks = *equal;
    return outcome;
}

}  // namespace dp::trainer
