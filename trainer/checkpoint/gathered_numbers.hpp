// SPDX-License-Identifier: Apache-2.0
//
// The vectors of the whole model, piece by piece, from ranks that divide it: so they write what a rank alone would write.
#pragma once

#include <algorithm>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/checkpoint/owned_numbers.hpp"
#include "trainer/checkpoint/placed_part.hpp"
#include "trainer/checkpoint/shard.hpp"

namespace dp::trainer {

class GatheredNumbers {
 public:
    // `is_first`: of the ranks that have the same part of the model, this one brings what all of them have. Refers to device and
    // communicator.
    GatheredNumbers(std::vector<PlacedPart> parts, bool is_first, Device& device, Communicator& world)
        : parts_(std::move(parts)),
          is_first_(is_first),
          device_(device),
          world_(world),
          exchange_(device, most_at_once() * world.size()) {}

    // The largest `count`.
    std::int64_t most_at_once() const { return std::max<std::int64_t>(kExchanged / world_.size(), 1); }

    // Of this rank's shard of a vector (shard_of(), by the rank in the world) the numbers [done, done + count), as far as there are
    // any. All ranks of the world call with the same vector, `done` and `count`. To the bit; padding is 0. An error is one of
    // communication; the device's status is the caller's to ask for, once all are through.
    Result<std::vector<float>> of_shard(const Vector& vector, std::int64_t done, std::int64_t count);

 private:
    std::vector<PlacedPart> parts_;
    bool is_first_;
    Device& device_;
    Communicator& world_;
    OwnedNumbers exchange_;

    static constexpr std::int64_t kExchanged = std::int64_t{1} << 20;  // numbers of all ranks together

    void put(const Vector& vector, const Shard& wanted, std::int64_t at);
};

}  // namespace dp::trainer
