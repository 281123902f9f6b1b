// SPDX-License-Identifier: Apache-2.0
//
// How well predicted masks cover the true ones, as Jaccard and Dice measure it: over all pixels of all images together, so that an
// image counts by what is in it. A pixel is in a predicted mask if its probability is above one half.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainer/models/model.hpp"
#include "trainer/training/global_metrics.hpp"

namespace dp::trainer {

struct MaskCounts {
    std::int64_t both = 0, predicted = 0, wanted = 0;  // pixels

    // 1 where there is nothing to find and nothing was found.
    double iou() const { return ratio(both, predicted + wanted - both); }
    double dice() const { return ratio(2 * both, predicted + wanted); }

 private:
    static double ratio(std::int64_t part, std::int64_t whole) {
        return whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
    }
};

inline void add_masks(std::span<const float> logits, std::span<const float> targets, MaskCounts& counts) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const bool predicted = logits[i] > 0, wanted = targets[i] > 0.5f;
        counts.both += predicted && wanted ? 1 : 0;
        counts.predicted += predicted ? 1 : 0;
        counts.wanted += wanted ? 1 : 0;
    }
}

// Of the batch that the model has evaluated last. Waits for the device.
inline void add_masks(const Model& model, const Batch& batch, Device& device, MaskCounts& counts) {
    const Tensor logits = model.mask_logits(batch.x.rows());
    const Tensor wide = device.make(Type::f32, logits.shape());
    device.convert(logits, wide);
    add_masks(device.values_of<float>(wide), device.values_of<float>(batch.target), counts);
}

// Every rank calls with its own.
inline Result<MaskCounts> sum_of_all_ranks(const MaskCounts& mine, Device& device, Communicator& ranks) {
    const std::array<std::int64_t, 3> numbers{mine.both, mine.predicted, mine.wanted};
    const Tensor sums = device.copy_of<std::int64_t>(Type::i64, {3}, numbers);
    DP_TRY(ranks.all_reduce(sums, Reduction::sum));
    DP_TRY(ranks.confirm());
    const auto all = device.values_of<std::int64_t>(sums);
    return MaskCounts{all[0], all[1], all[2]};
}

}  // namespace dp::trainer
