// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/train_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "trainer/base/random.hpp"
#include "trainer/training/learning_rate.hpp"
#include "trainer/training/schedule.hpp"

namespace dp::trainer {
namespace {

// A training ends at so many skipped steps in a row.
constexpr std::int64_t kMostBadSteps = 10;

// Numbers of a gradient that the ends of a pipeline exchange at a time.
constexpr std::int64_t kExchanged = std::int64_t{1} << 18;

// Those that steps change.
std::int64_t values_of(const Model& model) {
    return model.parameters().learned_count();
}

OptimizerOptions options_of(const Settings& settings) {
    return {settings.optimizer, settings.weight_decay, settings.constants, settings.ema_decay};
}

Shard shard_of_rank(const TrainingContext& run, std::int64_t rank) {
    return shard_of(values_of(run.model), rank, run.ranks.data.size());
}

Optimizer optimizer_of(const TrainingContext& run, const Shard& node_part) {
    const OptimizerOptions options = options_of(run.settings);
    if (run.settings.shard_optimizer) return {options, run.device, shard_of_rank(run, run.ranks.data.rank())};
    return {options, run.device, node_part, values_of(run.model)};
}

}  // namespace

TrainStep::TrainStep(const TrainingContext& run)
    : run_(run),
      capture_(dynamic_cast<StepCapture*>(&run.device)),
      samples_(run.device, run.data.train, 0, run.data.train.count, run.settings.batch,
               type_of(run.settings.precision)),
      node_part_(run.ranks.data.node_share().value_or(NodeShare{}).part_of(values_of(run.model))),
      adds_in_order_(run.device.is_deterministic() && run.ranks.data.size() > 1 &&
                     run.ranks.pipeline.size() == 1 && run.ranks.data.adds_in_order()),
      turns_(turns_of(run.settings.passes(run.ranks.pipeline.rank(), run.ranks.pipeline.size()))),
      optimizer_(optimizer_of(run, node_part_)),
      reducer_(run.model.parameters(), run.device, run.ranks.data, buckets_of(run.model.parameters()),
               adds_in_order_),
      copied_(run.device, run.ranks, run.model.parameters()),
      skips_bad_steps_(run.settings.clip || run.settings.skip_bad_steps),
      settles_at_once_(run.keeps_state || !optimizer_.skips_on_device()),
      found_(run.device.make(Type::f64, {2 + kClipping})),
      metrics_(found_.view(0, {2})),
      marks_(run.device, run.ranks.data) {
    if (capture_ != nullptr) capture_->forget_steps();
    make_sum();
    if (const Parameter* shared = shared_parameter())
        exchanged_ = run.device.make(Type::f32, {std::min(elements_of(shared->shape), kExchanged)});
    if (skips_bad_steps_) {
        clipping_ = found_.view(2, {kClipping});
        download_ = run.device.make_download(found_.bytes());
    }
    if (skips_bad_steps_ || run.settings.log_every > 0)
        norm_.emplace(run.device, run.ranks, run.model.parameters());
    if (run.settings.shard_optimizer && run.keeps_state)
        copy_.emplace(options_of(run.settings), run.device, shard_of_rank(run, run.ranks.data.peer()));
}

void TrainStep::make_sum() {
    const auto& shape = run_.model.parameters().gradients().shape();
    if (adds_in_order_)
        sum_ = run_.device.make_of_node(Type::f32, shape);
    else if (run_.settings.accumulate > 1)
        sum_ = run_.device.make_to_sum(Type::f32, shape);
}

Result<void> TrainStep::step(const SampleChoice& samples, std::int64_t number, const GlobalMetrics& ranks) {
    const MarkedStep marked(capture_);
    DP_TRY(make_gradients(samples, number, ranks));
    if (skips_bad_steps_) {
        settle();  // the last step: the number of this one depends on it
        DP_TRY(clip());
        // The training may end with this step.
        const bool may_be_last = bad_in_a_row_ + 1 >= kMostBadSteps;
        if (settles_at_once_ || may_be_last) {
            const bool usable = DP_TRY(is_usable(number, ranks));
            if (!usable) {
                hold(number);
                held_.is_skipped = true;
                marks_.end(number);
                return {};
            }
        }
    }
    hold(number);
    update(number);
    if (run_.settings.shard_optimizer) DP_TRY(gather_values());
    return share_values();
}

// Only this rank's death can stop it.
void TrainStep::update(std::int64_t number) {
    marks_.begin();
    optimizer_.step(run_.model.parameters(), gradients_, rate(number), clipping_);
    is_updated_ = true;
    if (copy_) copy_->step(run_.model.parameters(), gradients_, rate(number), clipping_);
    marks_.end(number);
}

bool TrainStep::has_given_up() const {
    return bad_in_a_row_ >= kMostBadSteps;
}

// Queues what is found of this step's gradients, and its way to the host: this rank's metrics and the clipping.
Result<void> TrainStep::clip() {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    DP_TRY(norm_->clip(gradients_, run_.settings.clip.value_or(kNoLimit), clipping_));
    download_->start(found_);
    is_pending_ = true;
    is_updated_ = false;
    return {};
}

// Takes over what the device found in the last step. Where ranks divide the model, a dying rank may have left garbage in it, which is
// not noticed here: the next confirmed result fails then, and one comes before anything is saved or reported, but how far this rank is.
void TrainStep::settle() {
    if (!is_pending_) return;
    is_pending_ = false;
    Metrics step;
    Clipping clipping{};
    const auto found = download_->wait();
    if (found.size() != sizeof step + sizeof clipping) return;  // the device has failed
    std::memcpy(&step, found.data(), sizeof step);
    std::memcpy(&clipping, found.data() + sizeof step, sizeof clipping);
    last_norm_ = std::sqrt(clipping.squares);
    if (clipping.skips != 0) {
        ++bad_in_a_row_;
        ++skipped_;
        if (is_updated_) optimizer_.count_as_skipped();
        return;
    }
    bad_in_a_row_ = 0;
    unskipped_.loss += step.loss;
    unskipped_.correct += step.correct;
}

// Of this step, for which the host waits.
Result<bool> TrainStep::is_usable(std::int64_t number, const GlobalMetrics& ranks) {
    if (run_.ranks.divide_model()) DP_TRY(run_.ranks.world.confirm());
    const std::int64_t before = skipped_;
    settle();
    if (has_given_up())
        return ranks.fail(
            fmt::format("step {}: for {} steps in a row the gradients were NaN or infinite; give a "
                        "smaller --lr than {}",
                        number, kMostBadSteps, run_.settings.rate.rate));
    return skipped_ == before;
}

// Sums the gradients of all batches and ranks into gradients_.
Result<void> TrainStep::make_gradients(const SampleChoice& samples, std::int64_t number,
                                       const GlobalMetrics& ranks) {
    if (skips_bad_steps_) run_.device.zero(metrics_);
    // What the node has once, each rank zeroes a part of, before it meets the others in its first sum.
    if (adds_in_order_)
        run_.device.zero(sum_.view(node_part_.first, {node_part_.count}));
    else if (sum_)
        run_.device.zero(sum_);
    const double waited = ranks.seconds_waited();
    PassTimes& times = first_.seconds > 0 ? later_ : first_;
    for (const Turn& turn : turns_) {
        const Batch batch = DP_TRY(batch_of(turn, samples, number));
        // Each rank's gradient is its part of the mean over the global batch, so their sum is that mean. The
        // last batch's gradients (of a pipeline's, in its last chunk), in order each batch's, are all-reduced while they are made.
        const bool reduces = turn.backward && (turn == turns_.back() || adds_in_order_);
        if (reduces) reducer_.begin(sum_);
        const auto start = std::chrono::steady_clock::now();
        pass(turn, batch);
        times.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (!ranks.model_sums()) return ranks.model_sums();
        if (reduces)
            gradients_ = DP_TRY(reduced());
        else if (turn.backward)
            keep_gradients(turn);
    }
    times.waited += ranks.seconds_waited() - waited;
    DP_TRY(copied_.agree(gradients_));
    return add_other_end(times);
}

// The samples of a micro-batch of step `number`, gathered again for its backward pass where other micro-batches were in between.
Result<Batch> TrainStep::batch_of(const Turn& turn, const SampleChoice& samples, std::int64_t number) {
    run_.observer.on_phase(Phase::load);
    Batch batch =
        DP_TRY(samples_.gather(samples.part(turn.micro_batch * run_.settings.batch, run_.settings.batch)));
    // Parameters and sampler draw from the streams up to 2^33.
    const auto stream = (std::uint64_t{1} << 33) + static_cast<std::uint64_t>(number - 1);
    batch.draw = {Random(run_.settings.seed, stream).bits(),
                  (turn.micro_batch * run_.ranks.data.size() + run_.ranks.data.rank()) * run_.settings.batch};
    run_.observer.on_phase(Phase::compute);
    return batch;
}

void TrainStep::pass(const Turn& turn, const Batch& batch) {
    const float scale = 1.0f / static_cast<float>(run_.schedule.global_batch);
    Stage* stage = run_.model.stage();
    if (stage == nullptr) return run_.model.forward_backward(batch, scale, metrics_);
    if (turn.forward) stage->forward(turn.slot, turn.chunk, batch);
    if (turn.backward) stage->backward(turn.slot, batch, scale, metrics_);
}

// Adds what a pass made to the sum of this step's. The last pass adds all gradients, so those of a finished chunk are zeroed: they are in
// the sum already.
void TrainStep::keep_gradients(const Turn& turn) {
    const Tensor& made = run_.model.parameters().gradients();
    const Stage* stage = run_.model.stage();
    if (stage == nullptr || run_.settings.virtual_stages == 1) return run_.device.add(made, sum_);
    for (const auto& [first, count] : stage->gradients_of(turn.chunk)) {
        run_.device.add(made.view(first, {count}), sum_.view(first, {count}));
        if (turn.micro_batch + 1 == run_.settings.accumulate) run_.device.zero(made.view(first, {count}));
    }
}

// Of a pipeline's first and last stage: what both have.
const Parameter* TrainStep::shared_parameter() const {
    const Stage* stage = run_.model.stage();
    return stage == nullptr ? nullptr : stage->shared();
}

// First and last stage add the other's part of that parameter's gradient to their own, piece by piece, once each has the sum of all
// samples: so both get the same bits, because a sum of two numbers does not depend on their order. What ranks of a node have once, each
// adds to a part of, after all of them have sent it. The last stage waits here for the first one's last backward pass, so this is a part of
// the bubble; other stages wait for it in the next step.
Result<void> TrainStep::add_other_end(PassTimes& times) {
    const Parameter* shared = shared_parameter();
    if (shared == nullptr) return {};
    run_.observer.on_phase(Phase::communication);
    Communicator& stages = run_.ranks.pipeline;
    const NodeShare share = run_.ranks.data.node_share().value_or(NodeShare{});
    const bool is_first = !run_.ranks.is_last_stage();
    const std::int64_t other = is_first ? stages.size() - 1 : 0;
    const std::int64_t count = elements_of(shared->shape), most = exchanged_.elements();
    for (std::int64_t done = 0; done < count; done += most) {
        const std::int64_t numbers = std::min(most, count - done);
        const Tensor mine = gradients_.view(shared->first + done, {numbers}),
                     theirs = exchanged_.first_rows(numbers);
        DP_TRY(stages.start_send(mine, other, is_first ? Lane::activations : Lane::gradients));
        const auto start = std::chrono::steady_clock::now();
        DP_TRY(stages.receive(theirs, other, is_first ? Lane::gradients : Lane::activations));
        const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        times.seconds += waited;
        times.waited += waited;
        DP_TRY(stages.wait_send(mine));
        DP_TRY(run_.ranks.data.node_barrier());
        const Shard part = share.part_of(numbers);
        if (part.count > 0)
            run_.device.add(theirs.view(part.first, {part.count}), mine.view(part.first, {part.count}));
    }
    DP_TRY(run_.ranks.data.node_barrier());
    run_.observer.on_phase(Phase::compute);
    return {};
}

Result<Tensor> TrainStep::reduced() {
    run_.observer.on_phase(Phase::communication);
    auto sums = reducer_.finish();
    run_.observer.on_phase(Phase::compute);
    return sums;
}

void TrainStep::begin_epoch(const Metrics& until_now, std::int64_t skipped_in_epoch) {
    settle();
    skipped_before_ = skipped_ - skipped_in_epoch;
    unskipped_ = until_now;
    set_metrics(run_.device, until_now, metrics_);
}

Metrics TrainStep::metrics() {
    settle();
    return skips_bad_steps_ ? unskipped_ : get_metrics(run_.device, metrics_);
}

Result<double> TrainStep::gradient_norm() {
    settle();
    return skips_bad_steps_ ? Result<double>(last_norm_) : norm_->of(gradients_);
}

Progress TrainStep::progress(std::int64_t step) {
    settle();
    const Metrics epoch = run_.ranks.counts() ? metrics() : Metrics{};
    return {step, skipped_, skipped_in_epoch(), bad_in_a_row_, epoch.loss, epoch.correct};
}

Result<void> TrainStep::resume(const Progress& progress) {
    skipped_ = progress.skipped;
    bad_in_a_row_ = skips_bad_steps_ ? progress.bad_in_a_row : 0;
    optimizer_.resume(progress.step - progress.skipped);
    if (progress.step == progress.skipped) optimizer_.begin_average({run_.model.parameters().values()});
    hold(progress.step);
    held_.progress = progress;
    const ParameterSet& parameters = run_.model.parameters();
    parameters.refresh_compute_copy(run_.device, parameters.frozen());  // ranks of a node write the same
    parameters.refresh_compute_copy(run_.device, node_part_);
    if (!copy_) marks_.end(progress.step);
    DP_TRY(share_values());
    if (!copy_) return {};
    copy_->begin(run_.model.parameters(), progress.step - progress.skipped);
    marks_.end(progress.step);
    return {};
}

void TrainStep::hold(std::int64_t step) {
    held_.progress.step = step;
    held_.is_skipped = false;
    if (!run_.keeps_state) return;
    held_.progress = progress(step);
    if (const Tensor& buffers = run_.model.parameters().buffers())
        held_.buffers = run_.device.values_of<float>(buffers);
}

std::optional<Progress> TrainStep::held() {
    const auto step = copy_ ? marks_.of_this_rank(!skips_bad_steps_) : marks_.newest();
    if (!run_.keeps_state || !step) return std::nullopt;
    // Another rank of this node has updated its part, so the sums are whole, but this one did not come to that.
    if (*step == held_.progress.step + 1 && !skips_bad_steps_) {
        gradients_ = reducer_.result();
        optimizer_.resume(*step - skipped_);
        hold(*step);
    }
    return *step == held_.progress.step ? std::optional(held_.progress) : std::nullopt;
}

void TrainStep::complete() {
    if (held_.is_skipped) return;  // it changes nothing
    const std::int64_t step = held_.progress.step;
    if (copy_) {
        if (marks_.of_this_rank(false) == step) return;
        optimizer_.resume(step - 1 - skipped_);
        return update(step);
    }
    const NodeShare mine = run_.ranks.data.node_share().value_or(NodeShare{});
    for (const std::int64_t rank : marks_.behind()) {
        const Shard part = NodeShare{rank, mine.ranks, mine.fewest}.part_of(values_of(run_.model));
        optimizer_.update(part, run_.model.parameters(), gradients_, rate(step), clipping_);
    }
}

bool TrainStep::has_to_complete() const {
    return copy_ ? marks_.of_this_rank(false) != held_.progress.step : !marks_.behind().empty();
}

void TrainStep::follow(const std::vector<float>& sums) {
    gradients_ = run_.model.parameters().gradients();
    run_.device.upload(sums.data(), gradients_);
    hold(held_.progress.step + 1);
    update(held_.progress.step);
}

double TrainStep::rate(std::int64_t number) const {
    return rate_at(run_.settings.rate, number, run_.schedule.total_steps);
}

// After a change of the values: makes it visible to the ranks of this node.
Result<void> TrainStep::share_values() {
    if (run_.ranks.data.node_share()) {
        run_.observer.on_phase(Phase::communication);
        const auto met = run_.ranks.data.node_barrier();
        run_.observer.on_phase(Phase::compute);
        DP_TRY(met);
    }
    run_.model.parameters().merge_adapters(run_.device);
    return {};
}

// All-gathers the values, of which each rank has updated its part.
Result<void> TrainStep::gather_values() {
    run_.observer.on_phase(Phase::communication);
    const ParameterSet& parameters = run_.model.parameters();
    DP_TRY(run_.ranks.data.all_gather(parameters.values().view(0, {values_of(run_.model)})));
    run_.observer.on_phase(Phase::compute);
    parameters.refresh_compute_copy(run_.device, node_part_);
    return {};
}

}  // namespace dp::trainer
