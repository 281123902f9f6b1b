// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/train_step.hpp"

#include <fmt/format.h>

#include "trainer/base/random.hpp"
#include "trainer/training/learning_rate.hpp"
#include "trainer/training/schedule.hpp"

namespace dp::trainer {
namespace {

std::int64_t values_of(const Model& model) {
    return model.parameters().values().elements();
}

Shard part_on_node(const Communicator& communicator, std::int64_t values) {
    const auto node = communicator.node_share();
    return node ? node->part_of(values) : Shard{0, values};
}

std::unique_ptr<Optimizer> optimizer_of(const Settings& settings, Device& device,
                                        const Communicator& communicator, const Shard& node_part,
                                        std::int64_t values) {
    const OptimizerPlan plan{settings.optimizer, settings.weight_decay, settings.constants};
    return settings.shard_optimizer
               ? make_optimizer(plan, device, shard_of(values, communicator.rank(), communicator.size()))
               : make_optimizer(plan, device, node_part, values);
}

}  // namespace

TrainStep::TrainStep(Model& model, const Samples& train, const Settings& settings, const Schedule& schedule,
                     Device& device, Communicator& communicator, Observer& observer)
    : model_(model),
      settings_(settings),
      schedule_(schedule),
      device_(device),
      communicator_(communicator),
      observer_(observer),
      samples_(device, train, 0, train.count, settings.batch, type_of(settings.precision)),
      node_part_(part_on_node(communicator, values_of(model))),
      optimizer_(optimizer_of(settings, device, communicator, node_part_, values_of(model))),
      reducer_(model.parameters(), device, communicator, buckets_of(model.parameters())),
      metrics_(device.make(Type::f64, {2})) {
    if (settings.accumulate > 1) sum_ = device.make_to_sum(Type::f32, model.parameters().gradients().shape());
    if (settings.clip || settings.skip_bad_steps)
        guard_.emplace(device, GradientNorm(device, communicator, values_of(model)), settings.clip);
    else if (settings.log_every > 0)
        norm_.emplace(device, communicator, values_of(model));
}

Result<void> TrainStep::step(const Tensor& indices, std::int64_t number, const GlobalMetrics& ranks) {
    DP_TRY(make_gradients(indices, number, ranks));
    if (guard_) {
        const auto verdict = DP_TRY(guard_->look(gradients_, optimizer_->part()));
        if (verdict == GradientGuard::Verdict::one_too_many)
            return ranks.fail(
                fmt::format("step {}: for {} steps in a row the gradients were NaN or infinite; give a "
                            "smaller --lr than {}",
                            number, kMostBadSteps, settings_.rate.rate));
        if (verdict == GradientGuard::Verdict::bad) {
            ++skipped_;
            return {};
        }
        const Metrics step = get_metrics(device_, metrics_);
        guarded_.loss += step.loss;
        guarded_.correct += step.correct;
    }
    optimizer_->step(model_.parameters(), gradients_, rate_at(settings_.rate, number, schedule_.total_steps));
    if (settings_.shard_optimizer) {
        DP_TRY(gather_values());
    }
    return share_values();
}

// Sums the gradients of all batches and ranks into gradients_.
Result<void> TrainStep::make_gradients(const Tensor& indices, std::int64_t number,
                                       const GlobalMetrics& ranks) {
    const bool sums = settings_.accumulate > 1;
    if (guard_) device_.zero(metrics_);
    if (sums) device_.zero(sum_);
    // Parameters and sampler draw from the streams up to 2^33.
    const auto stream = (std::uint64_t{1} << 33) + static_cast<std::uint64_t>(number - 1);
    for (std::int64_t part = 0; part < settings_.accumulate; ++part) {
        observer_.on_phase(Phase::load);
        Batch batch = samples_.gather(indices.view(part * settings_.batch, {settings_.batch}));
        batch.draw = {Random(settings_.seed, stream).bits(),
                      (part * communicator_.size() + communicator_.rank()) * settings_.batch};
        observer_.on_phase(Phase::compute);
        // Each rank's gradient is its part of the mean over the global batch, so their sum is that mean. The
        // last batch's gradients are all-reduced while they are made.
        const bool is_last = part + 1 == settings_.accumulate;
        if (is_last) reducer_.begin(sums ? sum_ : Tensor{});
        model_.forward_backward(batch, 1.0f / static_cast<float>(schedule_.global_batch), metrics_);
        if (sums && !is_last) device_.add(model_.parameters().gradients(), sum_);
        if (!ranks.whole_batches()) return ranks.whole_batches();
    }
    observer_.on_phase(Phase::communication);
    const auto gradients = DP_TRY(reducer_.finish());
    gradients_ = gradients;
    observer_.on_phase(Phase::compute);
    return {};
}

void TrainStep::begin_epoch(const Metrics& until_now) {
    guarded_ = until_now;
    set_metrics(device_, until_now, metrics_);
}

Metrics TrainStep::metrics() {
    return guard_ ? guarded_ : get_metrics(device_, metrics_);
}

Result<double> TrainStep::gradient_norm() {
    return guard_ ? guard_->norm() : norm_->of(gradients_);
}

Result<void> TrainStep::resume(std::int64_t steps, std::int64_t skipped, std::int64_t bad_in_a_row) {
    skipped_ = skipped;
    optimizer_->resume(steps - skipped);
    if (guard_) guard_->resume(bad_in_a_row);
    return share_values();
}

// After a change of the values: makes it visible to the ranks of this node.
Result<void> TrainStep::share_values() {
    model_.parameters().refresh_compute_copy(device_, node_part_);
    if (!communicator_.node_share()) return {};
    observer_.on_phase(Phase::communication);
    auto met = communicator_.node_barrier();
    observer_.on_phase(Phase::compute);
    return met;
}

// All-gathers the values, of which each rank has updated its part.
Result<void> TrainStep::gather_values() {
    observer_.on_phase(Phase::communication);
    auto gathered = communicator_.all_gather(model_.parameters().values());
    observer_.on_phase(Phase::compute);
    return gathered;
}

}  // namespace dp::trainer
