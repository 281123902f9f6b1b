// SPDX-License-Identifier: Apache-2.0
//
// Makes the gradients of what all ranks of a layer have (norms, some biases, positions) the same to the bit, where they divide the
// layers. Each of them has its own group of ranks with other samples, these may lie on the nodes in another way, and then their sums
// are rounded in another way: without this the copies would drift apart. On GPUs NVIDIA's libraries make some of them, which promise
// the same bits in another run on the same GPU, not on another GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/base/ranks.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

class CopiedGradients {
 public:
    // Of these parameters, which are placed. Every rank makes one.
    CopiedGradients(Device& device, const Ranks& ranks, const ParameterSet& parameters)
        : device_(device), ranks_(ranks) {
        if (ranks.tensor.size() == 1 || (ranks.data.size() == 1 && device.name() == "cpu")) return;
        for (const Parameter& one : parameters.all())
            if (one.part.is_whole() && !one.is_frozen) add({one.first, elements_of(one.shape)});
        std::int64_t largest = 0;
        for (const auto& piece : pieces_) largest = std::max(largest, count_of(piece));
        if (largest > 0) packed_ = device.make(Type::f32, {largest});
    }

    // All ranks get what the first of those that divide a layer has. Every rank calls, once the gradients are summed over all samples.
    Result<void> agree(const Tensor& gradients) {
        for (const auto& piece : pieces_) {
            const Tensor packed = packed_.first_rows(count_of(piece));
            if (ranks_.tensor.rank() == 0)
                copy(piece, [&](const Tensor& place, const Shard& range) {
                    device_.convert(gradients.view(range.first, {range.count}), place);
                });
            else
                device_.zero(packed);
            DP_TRY(ranks_.tensor.all_reduce(packed, Reduction::sum));
            // What ranks of a node have once, all of them write alike, after all have read it.
            DP_TRY(ranks_.data.node_barrier());
            copy(piece, [&](const Tensor& place, const Shard& range) {
                device_.convert(place, gradients.view(range.first, {range.count}));
            });
        }
        return pieces_.empty() ? Result<void>() : ranks_.data.node_barrier();
    }

 private:
    using Ranges = std::vector<Shard>;                            // of the gradients
    static constexpr std::int64_t kMost = std::int64_t{1} << 18;  // numbers at a time

    Device& device_;
    Ranks ranks_;
    std::vector<Ranges> pieces_;  // each of at most so many numbers
    Tensor packed_;               // f32, one piece

    static std::int64_t count_of(const Ranges& ranges) {
        std::int64_t count = 0;
        for (const Shard& one : ranges) count += one.count;
        return count;
    }
    void add(Shard range) {
        while (range.count > 0) {
            if (pieces_.empty() || count_of(pieces_.back()) == kMost) pieces_.emplace_back();
            const std::int64_t count = std::min(range.count, kMost - count_of(pieces_.back()));
            pieces_.back().push_back({range.first, count});
            range = {range.first + count, range.count - count};
        }
    }
    // Calls `act` with each range and its place in the packed ones.
    template <typename Act>
    void copy(const Ranges& ranges, const Act& act) {
        std::int64_t at = 0;
        for (const Shard& range : ranges) {
            act(packed_.view(at, {range.count}), range);
            at += range.count;
        }
    }
};

}  // namespace dp::trainer
