// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/range_test.hpp"

#include <algorithm>
#include <cmath>

#include "trainer/data/sampler.hpp"
#include "trainer/parallel/agreement.hpp"
#include "trainer/training/evaluation.hpp"
#include "trainer/training/sample_order.hpp"
#include "trainer/training/train_step.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kFirst = 10;  // steps, whose smooth loss is not smooth yet
constexpr double kFall = 0.01;       // of the first loss

Settings settings_of(Settings settings, const RangeOptions& options) {
    settings.epochs = std::nullopt;
    settings.max_steps = options.steps;
    settings.rate = {};
    settings.log_every = 0;
    settings.checkpoints = {};
    settings.peer_copy = 0;
    return settings;
}

Result<void> begin_with(const GivenValues& given, const Model& model, Device& device,
                        Communicator& communicator) {
    const auto hash = given.read(model.parameters(), device);
    return all_or_none(hash ? Result<void>() : tl::unexpected(hash.error()), device, communicator);
}

}  // namespace

double rate_of_range(const RangeOptions& options, std::int64_t step) {
    const double part =
        options.steps < 2 ? 0 : static_cast<double>(step - 1) / static_cast<double>(options.steps - 1);
    if (options.scale == RateScale::linear) return options.lowest + (options.highest - options.lowest) * part;
    return options.lowest * std::pow(options.highest / options.lowest, part);
}

std::optional<std::size_t> steepest_descent(std::span<const RatePoint> points) {
    if (points.size() < 3) return std::nullopt;
    const auto lowest = std::ranges::min_element(points, {}, &RatePoint::smooth);
    if (!(lowest->smooth < (1 - kFall) * points.front().smooth)) return std::nullopt;
    const auto end = static_cast<std::size_t>(lowest - points.begin());
    std::optional<std::size_t> found;
    double steepest = 0;
    for (std::size_t i = 1; i < std::min(end + 1, points.size() - 1); ++i) {
        const double slope =
            (points[i + 1].smooth - points[i - 1].smooth) / std::log(points[i + 1].rate / points[i - 1].rate);
        if (slope < steepest) {
            steepest = slope;
            found = i;
        }
    }
    return found;
}

Result<RangeTest> range_test(const ModelInfo& info, Model& model, const Dataset& data, const Settings& given,
                             const RangeOptions& options, Device& device, const Ranks& ranks,
                             Observer& observer) {
    Settings settings = settings_of(given, options);
    const auto schedule = DP_TRY(make_schedule(settings, data.train.count, ranks.data.size()));
    place_model(model, settings, settings.seed, device);
    const TrainingContext context{info, model, data, settings, schedule, device, ranks, observer};
    const DistributedSampler sampler(data.train.count, settings.batch, ranks.data.rank(), ranks.data.size(),
                                     settings.seed);
    GlobalMetrics metrics(context);
    TrainStep train_step(context);
    DP_TRY(device.status());
    if (settings.begin_with) DP_TRY(begin_with(*settings.begin_with, model, device, ranks.world));
    DP_TRY(train_step.resume({}));
    train_step.begin_epoch({}, 0);

    RangeTest test;
    SmoothLoss smooth;
    std::optional<SampleOrder> order;
    double before = 0, smallest = 0;
    const std::int64_t a_step = settings.batch * settings.accumulate;
    for (std::int64_t step = 1; step <= options.steps; ++step) {
        const std::int64_t place = (step - 1) % schedule.steps_per_epoch;
        const auto epoch = static_cast<std::uint64_t>((step - 1) / schedule.steps_per_epoch + 1);
        if (place == 0) order.emplace(sampler, epoch, data.train, device);
        settings.rate.rate = rate_of_range(options, step);
        observer.on_step_begin();
        DP_TRY(train_step.step(order->take(place * a_step, a_step), step, metrics));
        DP_TRY(device.status());
        const double sum = train_step.metrics().loss;
        const auto all = DP_TRY(metrics.total({sum - before, 0}));
        before = sum;
        const double loss = all.loss / static_cast<double>(schedule.global_batch);
        observer.on_step(static_cast<std::int64_t>(epoch), place + 1, schedule);
        test.has_exploded = !std::isfinite(loss) || train_step.skipped() > 0;
        if (test.has_exploded) break;
        test.points.push_back({settings.rate.rate, loss, smooth.add(loss)});
        const double now = test.points.back().smooth;
        smallest = step == 1 ? now : std::min(smallest, now);
        test.has_exploded = step > kFirst && now > options.explosion * smallest;
        if (test.has_exploded) break;
    }
    if (test.points.empty())
        return metrics.fail(
            "the loss is NaN or infinite before the first step: the weights or the data are not usable");
    return test;
}

}  // namespace dp::trainer
