// SPDX-License-Identifier: Apache-2.0
//
// Makes the gradients of what all ranks of a layer have (norms, some biases, positions) the same to the bit, where they divide the
// layers. Each of them has its own group of ranks with other samples, these may lie on the nodes in another way, and then their sums
// are rounded in another way: without this the copies would drift apart. On GPUs NVIDIA's libraries make some of them, which promise
// the same bits in another run on the same GPU, not on another GPU. Where each has the gradients of some tokens only, they are added up.
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
        if (ranks.tensor.size() == 1) return;
        for (const Parameter& one : parameters.all()) {
            const bool may_differ =
                one.is_of_some_tokens || ranks.data.size() > 1 || device.name() != "cpu";
            if (one.part.is_whole() && !one.is_frozen && may_differ)
                add({one.first, elements_of(one.shape)}, one.is_of_some_tokens);
        }
        std::int64_t largest = 0;
        for (const auto& piece : pieces_) largest = std::max(largest, count_of(piece));
        if (largest > 0) packed_ = device.make(Type::f32, {largest});
    }

    // All ranks get what the first of those that divide a layer has, or the sum. Every rank calls, once the gradients are summed over
    // all samples.
    Result<void> agree(const Tensor& gradients) {
        for (const auto& piece : pieces_) {
            const Tensor packed = packed_.first_rows(count_of(piece));
            copy(piece, [&](const Tensor& place, const Range& range) {
                if (range.adds_up || ranks_.tensor.rank() == 0)
                    device_.convert(gradients.view(range.first, {range.count}), place);
                else
                    device_.zero(place);
            });
            DP_TRY(ranks_.tensor.all_reduce(packed, Reduction::sum));
            // What ranks of a node have once, all of them write alike, after all have read it.
            DP_TRY(ranks_.data.node_barrier());
            copy(piece, [&](const Tensor& place, const Range& range) {
                device_.convert(place, gradients.view(range.first, {range.count}));
            });
        }
        return pieces_.empty() ? Result<void>() : ranks_.data.node_barrier();
    }

 private:
    struct Range {  // of the gradients
        std::int64_t first, count;
        bool adds_up;  // each rank has a part of the sum
    };
    using Ranges = std::vector<Range>;
    static constexpr std::int64_t kMost = std::int64_t{1} << 18;  // numbers at a time

    Device& device_;
    Ranks ranks_;
    std::vector<Ranges> pieces_;  // each of at most so many numbers
    Tensor packed_;               // f32, one piece

    static std::int64_t count_of(const Ranges& ranges) {
        std::int64_t count = 0;
        for (const Range& one : ranges) count += one.count;
        return count;
    }
    void add(Shard range, bool adds_up) {
        while (range.count > 0) {
            if (pieces_.empty() || count_of(pieces_.back()) == kMost) pieces_.emplace_back();
            const std::int64_t count = std::min(range.count, kMost - count_of(pieces_.back()));
            pieces_.back().push_back({range.first, count, adds_up});
            range = {range.first + count, range.count - count};
        }
    }
    // Calls `act` with each range and its place in the packed ones.
    template <typename Act>
    void copy(const Ranges& ranges, const Act& act) {
        std::int64_t at = 0;
        for (const Range& range : ranges) {
            act(packed_.view(at, {range.count}), range);
            at += range.count;
        }
    }
};

}  // namespace dp::trainer
