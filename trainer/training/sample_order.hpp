// SPDX-License-Identifier: Apache-2.0
//
// The order in which a rank takes the samples of an epoch. training.cpp makes one for each.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/data/sampler.hpp"
#include "trainer/training/device_samples.hpp"

namespace dp::trainer {

class SampleOrder {
 public:
    // `samples` are those of the sampler. Both outlive it.
    SampleOrder(const DistributedSampler& sampler, std::uint64_t epoch, const Split& samples, Device& device)
        : sampler_(sampler) {
        if (!sampler.is_listed()) {
            permutation_.emplace(sampler.permutation_of(epoch));
            return;
        }
        listed_ = sampler.epoch(epoch);
        if (samples.streamed) return;
        on_device_ = uploaded(device, listed_);
        if (on_device_) listed_.clear();  // else the device is out of memory, and says so
    }

    // The samples [first, first + count) of this rank's.
    SampleChoice take(std::int64_t first, std::int64_t count) const {
        if (on_device_) return {on_device_.view(first, {count}), {}};
        SampleChoice choice;
        for (std::int64_t i = first; i < first + count; ++i)
            choice.numbers.push_back(permutation_ ? permutation_->at(sampler_.place_of(i))
                                                  : listed_[static_cast<std::size_t>(i)]);
        return choice;
    }

 private:
    const DistributedSampler& sampler_;
    std::optional<Permutation> permutation_;
    std::vector<std::int32_t> listed_;
    Tensor on_device_;  // i32
};

}  // namespace dp::trainer
