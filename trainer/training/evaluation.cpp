// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/evaluation.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/training/schedule.hpp"

namespace dp::trainer {
namespace {

Tensor ascending(Device& device, std::int64_t count) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    return device.copy_of<std::int32_t>(Type::i32, {count}, order);
}

}  // namespace

Evaluation::Evaluation(Model& model, const Samples& test, const Settings& settings, Device& device,
                       Communicator& communicator, Observer& observer)
    : model_(model),
      device_(device),
      observer_(observer),
      count_(test.count),
      shard_(shard_of(test.count, communicator.rank(), communicator.size())),
      batch_(test_batch_of(model.activations_per_sample(), settings.batch)),
      samples_(device, test, shard_.first, shard_.count, batch_, type_of(settings.precision)),
      order_(ascending(device, shard_.count)),
      metrics_(device.make(Type::f64, {2})) {}

Result<Metrics> Evaluation::test(GlobalMetrics& ranks) {
    device_.zero(metrics_);
    for (std::int64_t first = 0; first < shard_.count; first += batch_) {
        const std::int64_t rows = std::min(batch_, shard_.count - first);
        observer_.on_phase(Phase::load);
        const Batch batch = samples_.gather(order_.view(first, {rows}));
        observer_.on_phase(Phase::compute);
        model_.evaluate(batch, metrics_);
    }
    const auto all = DP_TRY(ranks.total(get_metrics(device_, metrics_)));
    const auto count = static_cast<double>(count_);
    return Metrics{all.loss / count, all.correct / count};
}

}  // namespace dp::trainer
