// SPDX-License-Identifier: Apache-2.0
//
// Which samples a rank takes. The permutation of an epoch depends on seed and epoch alone, global batch k is
// its k-th piece of batch * world samples, and rank r takes the r-th part of that: so worlds of any size with
// the same global batch train on the same samples in the same steps. The last piece that is not full is
// dropped (drop_last).
#ifndef TRAINER_DATA_SAMPLER_HPP
#define TRAINER_DATA_SAMPLER_HPP

#include <cstdint>
#include <vector>

namespace dp::trainer {

class DistributedSampler {
 public:
    // `batch` is a rank's. rank < world.
    DistributedSampler(std::int64_t samples, std::int64_t batch, std::int64_t rank, std::int64_t world,
                       std::uint64_t seed)
        : samples_(samples), batch_(batch), rank_(rank), world_(world), seed_(seed) {}

    std::int64_t steps_per_epoch() const { return samples_ / (batch_ * world_); }

    // This rank's samples of the epoch, steps_per_epoch() batches one after another.
    std::vector<std::int32_t> epoch(std::uint64_t number) const;

 private:
    std::int64_t samples_, batch_, rank_, world_;
    std::uint64_t seed_;
};

}  // namespace dp::trainer

#endif
