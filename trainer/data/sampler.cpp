// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sampler.hpp"

#include <numeric>
#include <utility>

#include "trainer/base/random.hpp"

namespace dp::trainer {

std::vector<std::int32_t> DistributedSampler::epoch(std::uint64_t number) const {
    // Keeps away from the streams 0, 1, ..., which the parameters' initial values use.
    Random random(seed_, (std::uint64_t{1} << 32) + number);
    std::vector<std::int32_t> order(static_cast<std::size_t>(samples_));
    std::iota(order.begin(), order.end(), 0);
    for (auto left = static_cast<std::uint32_t>(samples_); left > 1; --left) {  // Fisher and Yates
        std::swap(order[left - 1], order[random.below(left)]);
    }

    std::vector<std::int32_t> mine;
    mine.reserve(static_cast<std::size_t>(steps_per_epoch() * batch_));
    for (std::int64_t step = 0; step < steps_per_epoch(); ++step) {
        const auto from = order.begin() + (step * world_ + rank_) * batch_;
        mine.insert(mine.end(), from, from + batch_);
    }
    return mine;
}

}  // namespace dp::trainer
