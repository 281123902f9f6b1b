// SPDX-License-Identifier: Apache-2.0
//
// The test of a model: within a training, and of a checkpoint (trainer evaluate).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "trainer/base/partition.hpp"
#include "trainer/training/context.hpp"
#include "trainer/training/device_samples.hpp"
#include "trainer/training/global_metrics.hpp"

namespace dp::trainer {

// Of models of tokens, whose loss is the mean over tokens.
inline std::optional<double> perplexity_of(const ModelInfo& info, double loss) {
    return info.data == DataSet::tokens ? std::optional(std::exp(loss)) : std::nullopt;
}

// Evaluates a model on the test data: each rank takes its part, and the result is that of all together.
class Evaluation {
 public:
    explicit Evaluation(const TrainingContext& run)
        : run_(run),
          shard_(shard_of(run.data.test.count, run.ranks.data.rank(), run.ranks.data.size())),
          batch_(test_batch_of(run.model, run.settings.batch)),
          samples_(run.device, run.data.test, shard_.first, shard_.count, batch_,
                   type_of(run.settings.precision)),
          metrics_(run.device.make(Type::f64, {2})) {
        if (run.data.test.streamed) return;
        std::vector<std::int32_t> order(static_cast<std::size_t>(shard_.count));
        std::iota(order.begin(), order.end(), 0);
        order_ = uploaded(run.device, order);
    }

    // Of each batch that this rank has evaluated.
    std::function<void(const Batch&)> on_batch;

    // The means over all test samples, or over the first ones of each rank, so many batches of the training. Every rank calls.
    Result<Metrics> test(GlobalMetrics& ranks, std::int64_t batches = 0) {
        const std::int64_t most = batches > 0 ? batches * run_.settings.batch : run_.data.test.count;
        const std::int64_t mine = std::min(shard_.count, most);
        run_.device.zero(metrics_);
        for (std::int64_t first = 0; first < mine; first += batch_) {
            const std::int64_t rows = std::min(batch_, mine - first);
            run_.observer.on_phase(Phase::load);
            if (first + batch_ < mine)
                samples_.expect(choice(first + batch_, std::min(batch_, mine - first - batch_)));
            const Batch batch = DP_TRY(samples_.gather(choice(first, rows)));
            run_.observer.on_phase(Phase::compute);
            run_.model.evaluate(batch, metrics_);
            if (on_batch) on_batch(batch);
        }
        if (!ranks.model_sums()) return tl::unexpected(ranks.model_sums().error());
        const auto all = DP_TRY(ranks.total(get_metrics(run_.device, metrics_)));
        std::int64_t count = 0;
        for (std::int64_t rank = 0; rank < run_.ranks.data.size(); ++rank)
            count += std::min(shard_of(run_.data.test.count, rank, run_.ranks.data.size()).count, most);
        return Metrics{all.loss / static_cast<double>(count), all.correct / static_cast<double>(count)};
    }

 private:
    const TrainingContext& run_;
    Shard shard_;  // of the test samples, this rank's
    std::int64_t batch_;
    DeviceSamples samples_;
    Tensor order_;    // i32: the shard's samples, if they are not streamed
    Tensor metrics_;  // f64 [2]

    SampleChoice choice(std::int64_t first, std::int64_t count) const {
        if (order_) return {order_.view(first, {count}), {}};
        SampleChoice streamed{{}, std::vector<std::int64_t>(static_cast<std::size_t>(count))};
        std::iota(streamed.numbers.begin(), streamed.numbers.end(), first);
        return streamed;
    }
};

}  // namespace dp::trainer
