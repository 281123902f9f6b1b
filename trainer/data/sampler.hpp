// SPDX-License-Identifier: Apache-2.0
//
// Which samples a rank takes. An epoch's permutation depends on seed and epoch only, global batch k is its
// k-th piece of batch * world samples, and rank r takes the r-th part of that. So worlds of any size with the
// same global batch take the same samples in the same steps. An incomplete last piece goes (drop_last).
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer/base/random.hpp"
#include "trainer/data/permutation.hpp"

namespace dp::trainer {

// Of more samples no list is made: each place of the permutation is computed when it is needed.
inline constexpr std::int64_t kMostListed = std::int64_t{1} << 22;

class DistributedSampler {
 public:
    // `batch` is per rank; rank < world.
    DistributedSampler(std::int64_t samples, std::int64_t batch, std::int64_t rank, std::int64_t world,
                       std::uint64_t seed)
        : samples_(samples), batch_(batch), rank_(rank), world_(world), seed_(seed) {}

    std::int64_t steps_per_epoch() const { return samples_ / (batch_ * world_); }

    bool is_listed() const { return samples_ <= kMostListed; }

    // This rank's samples of the epoch: steps_per_epoch() batches, one after another.
    std::vector<std::int32_t> epoch(std::uint64_t number) const {
        std::vector<std::int32_t> order(static_cast<std::size_t>(samples_));
        if (is_listed()) {
            Random random = random_of(number);
            std::iota(order.begin(), order.end(), 0);
            for (auto left = static_cast<std::uint32_t>(samples_); left > 1; --left)  // Fisher and Yates
                std::swap(order[left - 1], order[random.below(left)]);
        } else {
            const Permutation permutation = permutation_of(number);
            for (std::int64_t i = 0; i < samples_; ++i)
                order[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(permutation.at(i));
        }

        std::vector<std::int32_t> mine;
        mine.reserve(static_cast<std::size_t>(steps_per_epoch() * batch_));
        for (std::int64_t step = 0; step < steps_per_epoch(); ++step) {
            const auto from = order.begin() + (step * world_ + rank_) * batch_;
            mine.insert(mine.end(), from, from + batch_);
        }
        return mine;
    }

    // The order of all ranks' samples, where it is not listed, and the place in it of this rank's i-th.
    Permutation permutation_of(std::uint64_t epoch) const {
        return Permutation(samples_, random_of(epoch).bits());
    }
    std::int64_t place_of(std::int64_t i) const {
        return (i / batch_ * world_ + rank_) * batch_ + i % batch_;
    }

 private:
    std::int64_t samples_, batch_, rank_, world_;
    std::uint64_t seed_;

    // Keeps away from the streams 0, 1, ..., which the parameters' initial values use.
    Random random_of(std::uint64_t epoch) const { return {seed_, (std::uint64_t{1} << 32) + epoch}; }
};

}  // namespace dp::trainer
