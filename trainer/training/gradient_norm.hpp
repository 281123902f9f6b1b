// SPDX-License-Identifier: Apache-2.0
//
// The global norm of a step's gradients and what it decides, for train_step.cpp. If the ranks of a node share the sums, each adds
// up the squares of some blocks. The blocks do not depend on the ranks, so all nodes get the same bits. Where ranks divide the model,
// each number counts once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/ranks.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// The ranges of a placed model's gradients for which this rank answers: all but the copies of what an earlier rank has. Padding
// belongs to what is before it.
inline std::vector<Shard> counted_of(const ParameterSet& parameters) {
    std::vector<const Parameter*> placed;
    for (const Parameter& one : parameters.all())
        if (!one.is_frozen && elements_of(one.shape) > 0) placed.push_back(&one);
    std::ranges::sort(placed, {}, &Parameter::first);
    std::vector<Shard> counted;
    for (std::size_t i = 0; i < placed.size(); ++i) {
        if (placed[i]->part.is_copy) continue;
        const std::int64_t first = placed[i]->first,
                           end = i + 1 < placed.size() ? placed[i + 1]->first : parameters.learned_count();
        if (!counted.empty() && counted.back().first + counted.back().count == first)
            counted.back().count += end - first;
        else
            counted.push_back({first, end - first});
    }
    return counted;
}

// These in pieces of at most `largest`, none of two ranges.
inline std::vector<Shard> blocks_of(std::span<const Shard> ranges, std::int64_t largest) {
    std::vector<Shard> blocks;
    for (const Shard& range : ranges)
        for (std::int64_t done = 0; done < range.count; done += largest)
            blocks.push_back({range.first + done, std::min(largest, range.count - done)});
    return blocks;
}

class GradientNorm {
 public:
    // Of these parameters, which are placed. Every rank makes one.
    GradientNorm(Device& device, const Ranks& ranks, const ParameterSet& parameters)
        : device_(device),
          ranks_(ranks),
          share_(ranks.data.node_share()),
          ranges_(counted_of(parameters)),
          clipping_(device.make(Type::f64, {kClipping})) {
        if (share_) ranges_ = blocks_of(ranges_, kBlock);
        const auto count = static_cast<std::int64_t>(ranges_.size());
        // Of each range one sum, and behind the last one the rest of what square_sum() writes. On a node that of a block at a time.
        sums_ = device.make(Type::f64, {(share_ ? 0 : count) + kSquareSums});
        if (share_) blocks_ = device.make_of_node(Type::f64, {count});
        if (ranks.divide_model()) parts_ = device.make(Type::f64, {ranks.parts(), kClipping});
    }

    // Queues what these gradients' norm decides (clipping_of()); the host waits for nothing but the ranks of its node. Where ranks
    // divide the model, it is right if they then confirm it. Every rank calls; afterwards all may write to the gradients.
    Result<void> clip(const Tensor& gradients, double largest, const Tensor& clipping) {
        const Tensor sums = DP_TRY(share_ ? of_node(gradients) : of_rank(gradients));
        if (!ranks_.divide_model()) {
            device_.clip(sums, largest, clipping);
            return {};
        }
        // Added in the order of the ranks, so that all have the same bits wherever they are.
        device_.zero(parts_);
        device_.clip(sums, largest, parts_.view(ranks_.part() * kClipping, {kClipping}));
        DP_TRY(ranks_.sum_of_parts(parts_));
        device_.clip(parts_, largest, clipping);
        return {};
    }

    // Waits for the device. Every rank calls; afterwards all may write to the gradients.
    Result<double> of(const Tensor& gradients) {
        DP_TRY(clip(gradients, std::numeric_limits<double>::infinity(), clipping_));
        if (ranks_.divide_model()) DP_TRY(ranks_.world.confirm());
        return std::sqrt(device_.values_of<double>(clipping_)[0]);  // the squares come first
    }

 private:
    static constexpr std::int64_t kBlock = std::int64_t{1} << 16;  // elements

    Device& device_;
    Ranks ranks_;
    std::optional<NodeShare> share_;
    std::vector<Shard> ranges_;  // of the gradients; where they are shared, each of a block
    Tensor sums_;                // f64, for the device
    Tensor clipping_;            // of() has it
    Tensor parts_;               // f64, a Clipping of each of the ranks that divide the model
    Tensor blocks_;              // f64, the sum of squares of each block; of the node

    // A row for each range. They are in ascending order: what a sum leaves behind itself, the next one replaces.
    Result<Tensor> of_rank(const Tensor& gradients) {
        const auto count = static_cast<std::int64_t>(ranges_.size());
        for (std::int64_t i = 0; i < count; ++i) {
            const auto& [first, numbers] = ranges_[static_cast<std::size_t>(i)];
            device_.square_sum(gradients.view(first, {numbers}), sums_.view(i, {kSquareSums}));
        }
        return sums_.view(0, {count, 1});
    }
    // Ranks that share memory are CPUs, for which none of this is a wait.
    Result<Tensor> of_node(const Tensor& gradients) {
        DP_TRY(device_.status());
        const Shard mine = shard_of(blocks_.elements(), share_->index, share_->ranks);
        for (std::int64_t block = mine.first; block < mine.first + mine.count; ++block) {
            const auto& [first, numbers] = ranges_[static_cast<std::size_t>(block)];
            device_.square_sum(gradients.view(first, {numbers}), sums_);
            const double squares = device_.values_of<double>(sums_.first_rows(1))[0];
            device_.upload(&squares, blocks_.view(block, {1}));
        }
        DP_TRY(ranks_.data.node_barrier());
        return blocks_.view(0, {blocks_.elements(), 1});
    }
};

}  // namespace dp::trainer
