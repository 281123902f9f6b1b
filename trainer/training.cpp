// SPDX-License-Identifier: Apache-2.0
//
// The training loop: see training.hpp.
#include "trainer/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "trainer/data/sampler.hpp"
#include "trainer/optimizer.hpp"

namespace dp::trainer {
namespace {

using Clock = std::chrono::steady_clock;
// Samples that a rank evaluates at a time: large enough for the matrix products, small enough for any memory.
constexpr std::int64_t kTestBatch = 512;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Samples in the device's memory, from which batches are gathered without touching the host.
class DeviceSamples {
 public:
    // The samples [first, first + count), for batches of up to `batch`.
    DeviceSamples(Device& device, const Samples& samples, std::int64_t first, std::int64_t count,
                  std::int64_t batch)
        : device_(device), normalise_(samples.normalise) {
        features_ = upload(samples.features, first, count);
        targets_ = upload(samples.targets, first, count);
        x_ = device.make(Type::f32, {batch, samples.features.columns});
        target_ = device.make(samples.targets.type, {batch, samples.targets.columns});
    }

    // The samples that `indices` names. Valid until the next call.
    Batch gather(const Tensor& indices) {
        const Batch batch{x_.first_rows(indices.rows()), target_.first_rows(indices.rows())};
        device_.gather(features_, indices, normalise_, batch.x);
        device_.gather(targets_, indices, {}, batch.target);
        return batch;
    }

 private:
    Device& device_;
    Affine normalise_;
    Tensor features_, targets_;  // all of them, as stored
    Tensor x_, target_;          // one batch

    Tensor upload(const Matrix& matrix, std::int64_t first, std::int64_t count) {
        const auto row = static_cast<std::size_t>(matrix.columns) * size_of(matrix.type);
        Tensor tensor = device_.make(matrix.type, {count, matrix.columns});
        device_.upload(matrix.bytes.data() + static_cast<std::size_t>(first) * row, tensor);
        return tensor;
    }
};

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
          sampler_(data.train.count, settings.batch, communicator.rank(), communicator.size(), settings.seed),
          test_count_(data.test.count),
          test_shard_(shard_of(data.test.count, communicator.rank(), communicator.size())),
          train_samples_(device, data.train, 0, data.train.count, settings.batch),
          test_samples_(device, data.test, test_shard_.first, test_shard_.count, kTestBatch),
          metrics_(device.make(Type::f64, {2})) {
        model.place(device, settings.seed, std::max(settings.batch, kTestBatch));
        optimizer_ = make_optimizer(settings.optimizer, settings.rate, device, model.parameters());
        std::vector<std::int32_t> order(static_cast<std::size_t>(test_shard_.count));
        std::iota(order.begin(), order.end(), 0);
        test_order_ = upload_indices(device, order);
    }

    Result<EpochReport> epoch(std::int64_t number) {
        const auto start = Clock::now();
        observer_.on_phase(Phase::load);
        const Tensor indices = upload_indices(device_, sampler_.epoch(static_cast<std::uint64_t>(number)));
        const std::int64_t steps = std::min(schedule_.steps_per_epoch,
                                            schedule_.total_steps - (number - 1) * schedule_.steps_per_epoch);
        device_.zero(metrics_);
        for (std::int64_t step = 0; step < steps; ++step) {
            observer_.on_phase(Phase::load);
            const Batch batch =
                train_samples_.gather(indices.view(step * settings_.batch, {settings_.batch}));
            observer_.on_phase(Phase::compute);
            // Each rank's gradient is its part of the mean over the global batch: their sum is that mean.
            model_.forward_backward(batch, 1.0f / static_cast<float>(schedule_.global_batch), metrics_);
            observer_.on_phase(Phase::communication);
            if (auto done = communicator_.all_reduce(model_.parameters().gradients(), Reduction::sum);
                !done) {
                return tl::make_unexpected(done.error());
            }
            observer_.on_phase(Phase::compute);
            optimizer_->step(model_.parameters());
            if (auto sound = device_.status(); !sound) return tl::make_unexpected(sound.error());
            observer_.on_step(number, step + 1, schedule_);
        }
        auto trained = total();
        if (!trained) return tl::make_unexpected(trained.error());
        const auto samples = static_cast<double>(steps * schedule_.global_batch);
        const double seconds = seconds_since(start);

        auto tested = test();
        if (!tested) return tl::make_unexpected(tested.error());
        const auto tests = static_cast<double>(test_count_);
        EpochReport report{number,  trained->loss / samples, tested->loss / tests, std::nullopt,
                           seconds, samples / seconds};
        if (info_.classifies) report.test_accuracy = tested->correct / tests;
        if (!std::isfinite(report.loss)) {  // all ranks see the same sum, so all of them stop here
            return fail(Fault::training,
                        fmt::format("epoch {}: the loss is no longer a number; give a smaller --lr "
                                    "than {}",
                                    number, settings_.rate));
        }
        observer_.on_epoch(report, schedule_);
        return report;
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
    DeviceSamples train_samples_;
    DeviceSamples test_samples_;
    Tensor metrics_;
    Tensor test_order_;
    std::unique_ptr<Optimizer> optimizer_;

    // The metrics of all ranks together.
    Result<Metrics> total() {
        observer_.on_phase(Phase::communication);
        if (auto done = communicator_.all_reduce(metrics_, Reduction::sum); !done) {
            return tl::make_unexpected(done.error());
        }
        const auto sums = device_.values_of<double>(metrics_);
        if (auto sound = device_.status(); !sound) return tl::make_unexpected(sound.error());
        return Metrics{sums[0], sums[1]};
    }

    Result<Metrics> test() {
        device_.zero(metrics_);
        for (std::int64_t first = 0; first < test_shard_.count; first += kTestBatch) {
            const std::int64_t rows = std::min(kTestBatch, test_shard_.count - first);
            observer_.on_phase(Phase::load);
            const Batch batch = test_samples_.gather(test_order_.view(first, {rows}));
            observer_.on_phase(Phase::compute);
            model_.evaluate(batch, metrics_);
        }
        return total();
    }
};

}  // namespace

Result<Schedule> make_schedule(const Settings& settings, std::int64_t samples, std::int64_t world) {
    // Not batch * world: --batch-size may be anything up to its limit.
    if (settings.batch > samples / world) {
        return fail(Fault::usage,
                    fmt::format("a global batch of {} (ranks: {}, --batch-size: {}) is larger than the "
                                "data set of {} samples; give --batch-size {} or less, or fewer ranks",
                                settings.batch * world, world, settings.batch, samples,
                                std::max<std::int64_t>(samples / world, 1)));
    }
    Schedule schedule{};
    schedule.global_batch = settings.batch * world;
    schedule.steps_per_epoch = samples / schedule.global_batch;
    schedule.total_steps = schedule.steps_per_epoch * settings.epochs;
    if (settings.max_steps) schedule.total_steps = std::min(schedule.total_steps, *settings.max_steps);
    schedule.epochs = (schedule.total_steps + schedule.steps_per_epoch - 1) / schedule.steps_per_epoch;
    return schedule;
}

Result<bool> equal_on_all_ranks(std::uint64_t number, Device& device, Communicator& communicator) {
    // Largest and smallest of both halves in one all-reduce: min(x) = -max(-x).
    const auto high = static_cast<std::int64_t>(number >> 32),
               low = static_cast<std::int64_t>(number & 0xFFFFFFFFu);
    const std::vector<std::int64_t> halves{high, low, -high, -low};
    const Tensor tensor = device.copy_of<std::int64_t>(Type::i64, {4}, halves);
    if (auto done = communicator.all_reduce(tensor, Reduction::max); !done)
        return tl::make_unexpected(done.error());
    const auto extremes = device.values_of<std::int64_t>(tensor);
    if (auto sound = device.status(); !sound) return tl::make_unexpected(sound.error());
    return extremes[0] == -extremes[2] && extremes[1] == -extremes[3];
}

Result<Outcome> train(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                      Device& device, Communicator& communicator, Observer& observer) {
    const auto schedule = make_schedule(settings, data.train.count, communicator.size());
    if (!schedule) return tl::make_unexpected(schedule.error());

    Run run(info, model, data, settings, *schedule, device, communicator, observer);
    if (auto sound = device.status(); !sound) return tl::make_unexpected(sound.error());
    Outcome outcome{};
    outcome.schedule = *schedule;
    for (std::int64_t number = 1; number <= schedule->epochs; ++number) {
        auto report = run.epoch(number);
        if (!report) return tl::make_unexpected(report.error());
        outcome.last = *report;
        outcome.train_seconds += report->seconds;
    }
    outcome.samples_per_second =
        static_cast<double>(schedule->total_steps * schedule->global_batch) / outcome.train_seconds;
    outcome.parameters = model.parameters().download(device);
    outcome.parameters_hash = hash_of(outcome.parameters);
    auto equal = equal_on_all_ranks(outcome.parameters_hash, device, communicator);
    if (!equal) return tl::make_unexpected(equal.error());
    outcome.equal_on_all_ranks = *equal;
    return outcome;
}

}  // namespace dp::trainer
