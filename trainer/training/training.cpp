// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "trainer/base/seconds_since.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/training/checkpointing.hpp"
#include "trainer/training/context.hpp"
#include "trainer/training/early_stopping.hpp"
#include "trainer/training/evaluation.hpp"
#include "trainer/training/sample_order.hpp"
#include "trainer/training/train_step.hpp"
#include "trainer/training/whole_parameters.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// How often a rank says how it goes (dp_log_scalar): about as often as it is recorded.
constexpr double kProgressSeconds = 1;

// A run's state; train() below shows the sequence.
class Run {
 public:
    explicit Run(const TrainingContext& run)
        : run_(run),
          sampler_(run.data.train.count, run.settings.batch, run.ranks.data.rank(), run.ranks.data.size(),
                   run.settings.seed),
          ranks_(run),
          train_step_(run),
          evaluation_(run),
          log_(run.settings.log_every, run.settings.log_single) {
        if (!run.settings.checkpoints.directory.empty())
            checkpointing_.emplace(run, train_step_.optimizer(), train_step_.copy());
    }

    // Resumes from a checkpoint, if there is one; else begins with the values that were given, if there are any.
    Result<void> restore() {
        std::optional<Progress> saved;
        if (checkpointing_) saved = DP_TRY(checkpointing_->restore());
        if (saved) resumed_ = *saved;
        early_.resume(resumed_.best_test, resumed_.step);
        if (run_.settings.begin_with) DP_TRY(saved ? leave_given_values() : set_given_values());
        return train_step_.resume(resumed_);
    }
    // Resumes from the memory of a rank that has survived others.
    Result<void> restore(Survival& survival, const Survival::Source& source) {
        train_step_.begin_restore();
        if (checkpointing_) DP_TRY(checkpointing_->prepare());
        const ParameterSet& parameters = run_.model.parameters();
        const Optimizer& optimizer = train_step_.optimizer();
        const PeerCopy* copy = train_step_.copy();
        const auto want = [](const Slice& slice, const Shard& part) {
            return Survival::Part{slice.of(part), part.first, part.count};
        };
        std::vector<std::vector<Survival::Part>> wanted{
            {want({parameters.values()}, train_step_.node_part())}};  // others of this node write theirs
        for (std::size_t i = 0; i < optimizer.state().size(); ++i) {
            const auto part_of = [&](const Optimizer& one) {
                return want({one.state()[i].numbers, one.state()[i].first}, one.part());
            };
            wanted.push_back({part_of(optimizer)});
            if (copy != nullptr) wanted.back().push_back(part_of(copy->optimizer()));
        }
        std::vector<Tensor> once;
        if (parameters.buffers()) once.push_back(parameters.buffers());
        if (const Shard frozen = parameters.frozen(); frozen.count > 0)
            once.push_back(Slice{parameters.values()}.of(frozen));
        DP_TRY(survival.give(source, wanted, once, run_.device, run_.ranks.world));
        resumed_ = source.progress;
        DP_TRY(train_step_.resume(resumed_));
        return checkpointing_ ? checkpointing_->catch_up(resumed_) : Result<void>();
    }

    // What the next generation may ask for (Remains).
    std::optional<Progress> held() { return train_step_.held(); }
    std::int64_t reached() const { return train_step_.reached(); }
    std::vector<Shard> parts() const {
        const PeerCopy* copy = train_step_.copy();
        if (copy == nullptr) return {all_learned()};
        return {train_step_.optimizer().part(), copy->part()};
    }
    std::vector<std::vector<float>> state(std::size_t part) {
        train_step_.complete();
        const PeerCopy* copy = train_step_.copy();
        const Tensor& values = run_.model.parameters().values();
        const bool is_copy = part == 1;
        const Optimizer& optimizer = is_copy ? copy->optimizer() : train_step_.optimizer();
        std::vector<std::vector<float>> vectors{
            run_.device.values_of<float>(is_copy           ? copy->values()
                                         : copy != nullptr ? Slice{values}.of(optimizer.part())
                                                           : Slice{values}.of(all_learned()))};
        for (const auto& state : optimizer.state())
            vectors.push_back(run_.device.values_of<float>(state.numbers));
        return vectors;
    }
    // And the values that are frozen.
    std::vector<float> buffers() const {
        std::vector<float> numbers = train_step_.held_buffers();
        const Shard frozen = run_.model.parameters().frozen();
        if (frozen.count == 0) return numbers;
        const auto values = run_.device.values_of<float>(Slice{run_.model.parameters().values()}.of(frozen));
        numbers.insert(numbers.end(), values.begin(), values.end());
        return numbers;
    }
    TrainStep& train_step() { return train_step_; }

    std::int64_t resumed_step() const { return resumed_.step; }
    // The epoch of the last step: its end may not have been reported.
    std::int64_t first_epoch() const {
        return std::max<std::int64_t>(resumed_.step - 1, 0) / run_.schedule.steps_per_epoch + 1;
    }

    // Counts what the epochs' reports do not include.
    void count(Outcome& outcome) {
        outcome.skipped = train_step_.skipped();
        outcome.resumed = resumed_.step;
        if (ends_early()) {
            outcome.stopped_after = early_.best();
            outcome.schedule.total_steps = outcome.stopped_after->last_step;
            outcome.schedule.epochs = outcome.last.epoch;
        }
        if (!checkpointing_) return;
        outcome.checkpoints = checkpointing_->written();
        outcome.end_is_saved = checkpointing_->newest_is_saved();
    }

    Result<EpochReport> epoch(std::int64_t number) {
        const auto start = Clock::now();
        test_seconds_ = 0;
        const SampleOrder order = order_of(number);
        const std::int64_t before = (number - 1) * run_.schedule.steps_per_epoch;  // steps of earlier epochs
        const std::int64_t steps =
            std::min(run_.schedule.steps_per_epoch, run_.schedule.total_steps - before);
        // Part of the epoch of a checkpoint was done before.
        const std::int64_t earlier = std::max<std::int64_t>(resumed_.step - before, 0);
        const Progress begun = earlier > 0 ? resumed_ : Progress{};
        train_step_.begin_epoch({begun.loss, begun.correct}, begun.skipped_in_epoch);
        if (run_.settings.log_every > 0 && earlier > 0) log_.begin(counts(resumed_.step));
        if (run_.observer.wants_progress()) own_log_.begin(counts(before + earlier));
        const std::int64_t a_step = run_.settings.batch * run_.settings.accumulate;
        std::int64_t done = earlier;
        while (done < steps && !early_.is_due()) {
            const StepPlace place{number, done + 1, before + done + 1};
            if (done + 1 < steps) train_step_.expect(order.take((done + 1) * a_step, a_step));
            DP_TRY(one_step(order.take(done * a_step, a_step), place));
            ++done;
        }
        if (run_.settings.log_every > 0) earlier_loss_ = counts(0).loss;
        const auto trained = DP_TRY(ranks_.total(train_step_.metrics()));
        const auto samples = static_cast<double>((done - earlier) * run_.schedule.global_batch);
        const std::int64_t skipped = train_step_.skipped_in_epoch();
        const auto counted = static_cast<double>((done - skipped) * run_.schedule.global_batch);
        const double seconds = seconds_since(start) - test_seconds_;

        const StepLog::PausedTimer paused(log_);
        const auto tested = DP_TRY(evaluation_.test(ranks_));
        EpochReport report{number,  trained.loss / counted, tested.loss, std::nullopt,
                           seconds, samples / seconds,      skipped};
        if (run_.info.classifies) report.test_accuracy = tested.correct;
        report.test_perplexity = perplexity_of(run_.info, tested.loss);
        if (!std::isfinite(report.loss) || !std::isfinite(report.test_loss))
            return fail_together(
                fmt::format("epoch {}: the loss is NaN or infinite; give a smaller --lr than {}", number,
                            run_.settings.rate.rate));
        run_.observer.on_epoch(report, run_.schedule);
        if (is_whole_test_counted()) early_.see(before + done, tested.loss);
        if (ends_early()) DP_TRY(end_early(before + done));
        return report;
    }

    // Before its last step.
    bool ends_early() const {
        return early_.is_due() && early_.best()->last_step < run_.schedule.total_steps;
    }

    // Repeats the first step.
    Result<void> repeat(std::int64_t steps) {
        const SampleChoice first = order_of(1).take(0, run_.settings.batch * run_.settings.accumulate);
        for (std::int64_t step = 1; step <= steps; ++step) {
            run_.observer.on_step_begin();
            DP_TRY(train_step_.step(first, std::min(step, run_.schedule.total_steps), ranks_));
            DP_TRY(run_.device.status());
            run_.observer.on_step(1, step, run_.schedule);
        }
        return {};
    }

 private:
    const TrainingContext& run_;
    DistributedSampler sampler_;
    GlobalMetrics ranks_;
    TrainStep train_step_;
    Evaluation evaluation_;
    StepLog log_;
    StepLog own_log_{0, false};  // for on_progress()
    double earlier_loss_ = 0;    // this rank's, of the epochs before this one
    double test_seconds_ = 0;    // within this epoch
    Progress resumed_;           // what was made before this training went on
    EarlyStopping early_{run_.settings.early_stopping};
    std::optional<Checkpointing> checkpointing_;  // where there are checkpoints

    Shard all_learned() const { return {0, run_.model.parameters().learned_count()}; }

    Result<void> leave_given_values() {
        run_.observer.on_given_values(fmt::format("{} is not read: the training resumes from its checkpoint",
                                                  run_.settings.begin_with->name));
        return {};
    }
    Result<void> set_given_values() {
        const auto& [name, read] = *run_.settings.begin_with;
        run_.observer.on_phase(Phase::load);
        const auto hash = read(run_.model.parameters(), run_.device);
        DP_TRY(
            all_or_none(hash ? Result<void>() : tl::unexpected(hash.error()), run_.device, run_.ranks.world));
        const bool is_same = DP_TRY(equal_on_all_ranks(*hash, run_.device, run_.ranks.world));
        if (!is_same)
            return fail(
                Fault::usage,
                run_.ranks.world.rank() == 0
                    ? fmt::format("{}: the ranks read different weights there; give all the same", name)
                    : "");
        run_.observer.on_given_values(fmt::format("the weights are those of {}", name));
        return {};
    }

    // This rank's samples of an epoch.
    SampleOrder order_of(std::int64_t epoch) {
        run_.observer.on_phase(Phase::load);
        return {sampler_, static_cast<std::uint64_t>(epoch), run_.data.train, run_.device};
    }

    // A step with its reports and checkpoints.
    Result<void> one_step(const SampleChoice& samples, const StepPlace& place) {
        const bool is_told = log_.is_due(place);
        if (is_told && log_.is_single()) log_.begin(counts(place.number - 1));
        run_.observer.on_step_begin();
        const auto stepped = train_step_.step(samples, place.number, ranks_);
        if (!stepped && train_step_.has_given_up() && checkpointing_) (void)checkpointing_->finish();
        DP_TRY(stepped);
        DP_TRY(run_.device.status());
        run_.observer.on_step(place.epoch, place.step, run_.schedule);
        if (is_told) DP_TRY(tell(place));
        if (run_.observer.wants_progress()) tell_progress(place);
        if (is_test_due(place)) DP_TRY(test(place));
        if (!checkpointing_) return {};
        std::optional<StepLog::PausedTimer> paused, own_paused;
        const auto progress = [&] {
            paused.emplace(log_);
            own_paused.emplace(own_log_);
            return progress_at(place.number);
        };
        return checkpointing_->after_step(place.number, progress, early_.is_due());
    }

    Progress progress_at(std::int64_t step) {
        Progress progress = train_step_.progress(step);
        progress.best_test = early_.best();
        return progress;
    }
    // Those of a part of the data, within epochs, are not compared with those of all.
    bool is_whole_test_counted() const {
        return run_.settings.test_every == 0 || run_.settings.test_batches == 0;
    }
    Result<void> end_early(std::int64_t step) {
        run_.observer.on_early_stop(early_.line(run_.schedule.total_steps));
        return checkpointing_ ? checkpointing_->at_end(step, progress_at(step)) : Result<void>();
    }

    // An error that all ranks have come to together: what is written of the steps before it is kept.
    tl::unexpected<Error> fail_together(std::string message) {
        if (checkpointing_) (void)checkpointing_->finish();
        return ranks_.fail(std::move(message));
    }

    // The epoch's end has one anyway.
    bool is_test_due(const StepPlace& place) const {
        const bool is_end =
            place.step == run_.schedule.steps_per_epoch || place.number == run_.schedule.total_steps;
        return run_.settings.test_every > 0 && place.number % run_.settings.test_every == 0 && !is_end;
    }

    Result<void> test(const StepPlace& place) {
        const auto start = Clock::now();
        const StepLog::PausedTimer paused(log_), own_paused(own_log_);
        const auto tested = DP_TRY(evaluation_.test(ranks_, run_.settings.test_batches));
        const double seconds = seconds_since(start);
        test_seconds_ += seconds;
        if (!std::isfinite(tested.loss))
            return fail_together(
                fmt::format("step {}: the test loss is NaN or infinite; give a smaller --lr than {}",
                            place.number, run_.settings.rate.rate));
        TestReport report{place, tested.loss, std::nullopt, perplexity_of(run_.info, tested.loss), seconds};
        if (run_.info.classifies) report.accuracy = tested.correct;
        run_.observer.on_test(report, run_.schedule);
        early_.see(place.number, tested.loss);
        return {};
    }

    // This rank's counts after `steps` steps.
    StepCounts counts(std::int64_t steps) {
        return {steps, train_step_.skipped(), earlier_loss_ + train_step_.metrics().loss};
    }

    void tell_progress(const StepPlace& place) {
        const bool is_end =
            place.step == run_.schedule.steps_per_epoch || place.number == run_.schedule.total_steps;
        if (own_log_.seconds() < kProgressSeconds && !is_end) return;
        const StepCounts now = counts(place.number), since = own_log_.since(now);
        const double seconds = own_log_.seconds();  // the counts have waited for the device
        const auto steps = static_cast<double>(since.steps - since.skipped);
        const auto of_a_step = static_cast<double>(run_.settings.batch * run_.settings.accumulate);
        run_.observer.on_progress(
            {place,
             run_.ranks.is_last_stage() ? std::optional(since.loss / (steps * of_a_step)) : std::nullopt,
             static_cast<double>(since.steps * run_.schedule.global_batch) / seconds});
        own_log_.begin(now);
    }

    // Reports the steps since the last report to the observer. Every rank calls.
    Result<void> tell(const StepPlace& place) {
        const StepCounts since = log_.since(counts(place.number));
        const double seconds = log_.seconds();
        const double norm = DP_TRY(train_step_.gradient_norm());
        const auto all = DP_TRY(ranks_.total({since.loss, 0}));
        const auto samples = static_cast<double>((since.steps - since.skipped) * run_.schedule.global_batch);
        run_.observer.on_log(
            {place, all.loss / samples, seconds / static_cast<double>(since.steps),
             rate_at(run_.settings.rate, place.number, run_.schedule.total_steps), norm, since.skipped},
            run_.schedule);
        log_.begin(counts(place.number));
        return {};
    }
};

// A training with all that it needs, which its state outlives if a peer dies (Remains).
class LiveRun final : public Remains {
 public:
    explicit LiveRun(const TrainingContext& context)
        : schedule_(context.schedule),
          context_{context.info,   context.model, context.data,     context.settings,   schedule_,
                   context.device, context.ranks, context.observer, context.keeps_state},
          run_(context_) {}

    Result<Outcome> train(Survival* survival, const std::optional<Survival::Source>& source) {
        auto& [info, model, data, settings, schedule, device, ranks, observer, keeps_state] = context_;
        DP_TRY(device.status());
        DP_TRY(source ? run_.restore(*survival, *source) : run_.restore());
        if (survival != nullptr && survival->is_restart())
            observer.on_recovery(survival->done(run_.resumed_step(), source));
        DP_TRY(all_or_none(observer.on_begin(), device, ranks.world));
        Outcome outcome{};
        outcome.schedule = schedule;
        for (std::int64_t number = run_.first_epoch(); number <= schedule.epochs; ++number) {
            outcome.last = DP_TRY(run_.epoch(number));
            outcome.train_seconds += outcome.last.seconds;
            if (run_.ends_early()) break;
        }
        run_.count(outcome);
        if (survival != nullptr) outcome.recovered = survival->totals();
        outcome.train_seconds = DP_TRY(largest_of_all_ranks(outcome.train_seconds, device, ranks.world));
        outcome.samples_per_second =
            static_cast<double>((outcome.schedule.total_steps - outcome.resumed) * schedule.global_batch) /
            outcome.train_seconds;
        // A GPU waits for its neighbours where this process does not see it.
        if (ranks.pipeline.size() > 1 && device.name() == "cpu") outcome.bubble = DP_TRY(mean_bubble());
        outcome.parameters = DP_TRY(whole_parameters(model.parameters(), ranks, device));
        outcome.parameters_hash = hash_of(outcome.parameters);
        outcome.equal_on_all_ranks = DP_TRY(equal_on_all_ranks(outcome.parameters_hash, device, ranks.world));
        return outcome;
    }

    std::optional<Progress> progress() override { return run_.held(); }
    std::int64_t world() const override { return world_; }
    std::int64_t reached() const override { return run_.reached(); }
    std::vector<Shard> parts() const override { return run_.parts(); }
    std::vector<std::vector<float>> state(std::size_t part) override { return run_.state(part); }
    std::vector<float> buffers() override { return run_.buffers(); }
    bool has_to_complete() override { return run_.train_step().has_to_complete(); }
    bool can_follow() override { return run_.train_step().can_follow(); }
    std::vector<float> sums() override { return run_.train_step().sums(); }
    void follow(const std::vector<float>& sums) override { run_.train_step().follow(sums); }

 private:
    Schedule schedule_;
    TrainingContext context_;
    const std::int64_t world_ = context_.ranks.world.size();
    Run run_;

    Result<double> mean_bubble() {
        const std::array mine{std::bit_cast<std::int64_t>(run_.train_step().bubble())};
        double sum = 0;
        for (const auto bits : DP_TRY(gather_of_all_ranks(mine, context_.device, context_.ranks.world)))
            sum += std::bit_cast<double>(bits);
        return sum / static_cast<double>(world_);
    }
};

}  // namespace

void place_model(Model& model, const Settings& settings, std::optional<std::uint64_t> seed, Device& device) {
    const std::int64_t rows = std::max(settings.batch, test_batch_of(model, settings.batch));
    const Type type = type_of(settings.precision);
    model.place(device, seed, rows, type);
    device.reserve_convolution_scratch(model.convolution_scratch(device, rows, type));
    if (settings.precision == Precision::bf16) device.reserve_copies(model.widest_operation(rows));
}

Result<void> repeat_step(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                         Device& device, const Ranks& ranks, std::int64_t steps, Observer& observer) {
    const auto schedule = DP_TRY(make_schedule(settings, data.train.count, ranks.data.size()));
    place_model(model, settings, settings.seed, device);
    const TrainingContext context{info, model, data, settings, schedule, device, ranks, observer};
    Run run(context);
    DP_TRY(device.status());
    return run.repeat(steps);
}

Result<Outcome> train(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                      Device& device, const Ranks& ranks, Observer& observer, Survival* survival) {
    const auto schedule = DP_TRY(make_schedule(settings, data.train.count, ranks.data.size()));
    std::optional<Survival::Source> source;
    if (survival != nullptr && survival->is_restart())
        source = DP_TRY(survival->ask(model.parameters().learned_count(), device, ranks.world));
    // What another rank gives needs no beginning.
    place_model(model, settings, source ? std::nullopt : std::optional(settings.seed), device);
    // Without copies the parts of a sharded optimizer die with their ranks.
    const bool keeps = survival != nullptr && !ranks.divide_model() && ranks.data.size() > 1 &&
                       ranks.data.survives_deaths() && (!settings.shard_optimizer || settings.peer_copy > 0);
    auto live = std::make_unique<LiveRun>(
        TrainingContext{info, model, data, settings, schedule, device, ranks, observer, keeps});
    auto outcome = live->train(survival, source);
    if (!outcome && outcome.error().fault == Fault::world && survival != nullptr)
        survival->keep(std::move(live));
    return outcome;
}

}  // namespace dp::trainer
