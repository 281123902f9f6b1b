// SPDX-License-Identifier: Apache-2.0
//
// The global norm of a step's gradients, for train_step.cpp. If the ranks of a node share the sums, each adds
// up the squares of some blocks. The blocks do not depend on the ranks, so all nodes get the same bits. Where ranks divide the model,
// each number counts once.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
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
          sums_(device.make(Type::f64, {kSquareSums})),
          parts_(device.make(Type::f64, {ranks.parts()})) {
        if (!share_) return;
        ranges_ = blocks_of(ranges_, kBlock);
        blocks_ = device.make_of_node(Type::f64, {static_cast<std::int64_t>(ranges_.size())});
    }

    // Waits for the device. Every rank calls; afterwards all may write to the gradients.
    Result<double> of(const Tensor& gradients) {
        const double squares = DP_TRY(share_ ? of_node(gradients) : of_rank(gradients));
        if (!ranks_.divide_model()) return std::sqrt(squares);
        // Added in the order of the ranks, so that all have the same bits wherever they are.
        std::vector<double> parts(static_cast<std::size_t>(ranks_.parts()));
        parts[static_cast<std::size_t>(ranks_.part())] = squares;
        device_.upload(parts.data(), parts_);
        DP_TRY(ranks_.sum_of_parts(parts_));
        DP_TRY(ranks_.world.confirm());
        const auto all = device_.values_of<double>(parts_);
        return std::sqrt(std::accumulate(all.begin(), all.end(), 0.0));
    }

 private:
    static constexpr std::int64_t kBlock = std::int64_t{1} << 16;  // elements

    Device& device_;
    Ranks ranks_;
    std::optional<NodeShare> share_;
    std::vector<Shard> ranges_;  // of the gradients; where they are shared, each of a block
    Tensor sums_;                // f64 [kSquareSums], for the device
    Tensor parts_;               // f64, the sums of squares of the ranks that divide the model
    Tensor blocks_;              // f64, the sum of squares of each block; of the node

    double squares_of(const Tensor& gradients, const Shard& range) {
        device_.square_sum(gradients.view(range.first, {range.count}), sums_);
        return device_.values_of<double>(sums_.first_rows(1))[0];
    }
    Result<double> of_rank(const Tensor& gradients) {
        double squares = 0;
        for (const Shard& range : ranges_) squares += squares_of(gradients, range);
        return squares;
    }
    Result<double> of_node(const Tensor& gradients) {
        DP_TRY(device_.status());
        const Shard mine = shard_of(blocks_.elements(), share_->index, share_->ranks);
        for (std::int64_t block = mine.first; block < mine.first + mine.count; ++block) {
            const double squares = squares_of(gradients, ranges_[static_cast<std::size_t>(block)]);
            device_.upload(std::array{squares}.data(), blocks_.view(block, {1}));
        }
        DP_TRY(ranks_.data.node_barrier());
        const auto squares = device_.values_of<double>(blocks_);
        return std::accumulate(squares.begin(), squares.end(), 0.0);
    }
};

}  // namespace dp::trainer
