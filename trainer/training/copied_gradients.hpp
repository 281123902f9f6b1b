// SPDX-License-Identifier: Apache-2.0
//
// Makes the gradients of what all ranks of a layer have (norms, some biases, positions) the same to the bit, where they divide the
// layers. Each of them has its own group of ranks with other samples, these may lie on the nodes in another way, and then their sums
// are rounded in another way: without this the copies would drift apart. Where each of them has the gradients of some tokens only, these
// are added up, in the order of the ranks: so are those of the same tokens elsewhere, wherever their ranks are. On GPUs NVIDIA's
// libraries make some of them, which promise the same bits in another run on the same GPU, not on another GPU.
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
            const bool may_differ = one.is_of_some_tokens || ranks.data.size() > 1 || device.name() != "cpu";
            if (one.part.is_whole() && !one.is_frozen && may_differ)
                add({one.first, elements_of(one.shape)}, one.is_of_some_tokens);
        }
        std::int64_t largest = 0;
        for (const Piece& piece : pieces_) largest = std::max(largest, piece.count() * rows_of(piece));
        if (largest > 0) packed_ = device.make(Type::f32, {largest});
    }

    // All ranks get what the first of those that divide a layer has, or the sum. Every rank calls, once the gradients are summed over
    // all samples.
    Result<void> agree(const Tensor& gradients) {
        for (const Piece& piece : pieces_) {
            const std::int64_t count = piece.count();
            const Tensor packed = packed_.first_rows(count);
            const Tensor mine = piece.adds_up ? packed_.view(ranks_.tensor.rank() * count, {count}) : packed;
            if (piece.adds_up || ranks_.tensor.rank() == 0)
                copy(piece, mine, [&](const Tensor& place, const Shard& range) {
                    device_.convert(gradients.view(range.first, {range.count}), place);
                });
            else
                device_.zero(packed);
            if (piece.adds_up)
                DP_TRY(ranks_.tensor.all_gather(packed_.first_rows(count * rows_of(piece))));
            else
                DP_TRY(ranks_.tensor.all_reduce(packed, Reduction::sum));
            for (std::int64_t row = 1; row < rows_of(piece); ++row)
                device_.add(packed_.view(row * count, {count}), packed);
            // What ranks of a node have once, all of them write alike, after all have read it.
            DP_TRY(ranks_.data.node_barrier());
            copy(piece, packed, [&](const Tensor& place, const Shard& range) {
                device_.convert(place, gradients.view(range.first, {range.count}));
            });
        }
        return pieces_.empty() ? Result<void>() : ranks_.data.node_barrier();
    }

 private:
    struct Piece {
        bool adds_up;               // each rank has a part of the sum
        std::vector<Shard> ranges;  // of the gradients

        std::int64_t count() const {
            std::int64_t count = 0;
            for (const Shard& one : ranges) count += one.count;
            return count;
        }
    };
    static constexpr std::int64_t kMost = std::int64_t{1} << 18;  // numbers at a time

    Device& device_;
    Ranks ranks_;
    std::vector<Piece> pieces_;
    Tensor packed_;  // f32, one piece; of one that is added up, each rank's

    std::int64_t rows_of(const Piece& piece) const { return piece.adds_up ? ranks_.tensor.size() : 1; }
    void add(Shard range, bool adds_up) {
        const std::int64_t most = adds_up ? kMost / ranks_.tensor.size() : kMost;
        while (range.count > 0) {
            auto piece = std::ranges::find_if(
                pieces_, [&](const Piece& one) { return one.adds_up == adds_up && one.count() < most; });
            if (piece == pieces_.end()) piece = pieces_.insert(piece, {adds_up, {}});
            const std::int64_t count = std::min(range.count, most - piece->count());
            piece->ranges.push_back({range.first, count});
            range = {range.first + count, range.count - count};
        }
    }
    // Calls `act` with each range and its place in `packed`.
    template <typename Act>
    void copy(const Piece& piece, const Tensor& packed, const Act& act) {
        std::int64_t at = 0;
        for (const Shard& range : piece.ranges) {
            act(packed.view(at, {range.count}), range);
            at += range.count;
        }
    }
};

}  // namespace dp::trainer
