// SPDX-License-Identifier: Apache-2.0
//
// Which samples a rank takes. An epoch's permutation depends on seed and epoch only, global batch k is
// its k-th piece of batch * world samples, and rank r takes the r-th part of that. So worlds of any
// size with the same global batch train on the same samples in the same steps. An incomplete last piece
// is dropped (drop_last).
#pragma once

#include <cstdint>
#include <vector>

namespace dp::trainer {

class DistributedSampler {
 public:
    // `batch` is per rank; rank < world.
    DistributedSampler(std::int64_t samples, std::int64_t batch, std::int64_t rank, std::int64_t world,
                       std::uint64_t seed)
        : samples_(samples), batch_(batch), rank_(rank), world_(world), seed_(seed) {}

    std::int64_t steps_per_epoch() const { return samples_ / (batch_ * world_); }

    // This rank's samples of the epoch: steps_per_epoch() batches, one after another.
    std::vector<std::int32_t> epoch(std::uint64_t number) const;

 private:
    std::int64_t samples_, batch_, rank_, world_;
    std::uint64_t seed_;
};

}  // namespace dp::trainer
