// SPDX-License-Identifier: Apache-2.0
//
// The global norm of a step's gradients, for train_step.cpp. If the ranks of a node share the sums, each adds
// up the squares of some blocks. The blocks do not depend on the ranks, so all nodes get the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class GradientNorm {
 public:
    // For that many gradients. Every rank makes one.
    GradientNorm(Device& device, Communicator& communicator, std::int64_t gradients)
        : device_(device),
          communicator_(communicator),
          share_(communicator.node_share()),
          sums_(device.make(Type::f64, {kSquareSums})) {
        if (share_) blocks_ = device.make_of_node(Type::f64, {(gradients + kBlock - 1) / kBlock});
    }

    // Waits for the device. Every rank calls; afterwards all may write to the gradients.
    Result<double> of(const Tensor& gradients) {
        if (!share_) {
            device_.square_sum(gradients, sums_);
            return std::sqrt(device_.values_of<double>(sums_.first_rows(1))[0]);
        }
        DP_TRY(device_.status());
        const Shard mine = shard_of(blocks_.elements(), share_->index, share_->ranks);
        for (std::int64_t block = mine.first; block < mine.first + mine.count; ++block) {
            const std::int64_t first = block * kBlock;
            device_.square_sum(gradients.view(first, {std::min(kBlock, gradients.elements() - first)}),
                               sums_);
            device_.upload(device_.values_of<double>(sums_.first_rows(1)).data(), blocks_.view(block, {1}));
        }
        DP_TRY(communicator_.node_barrier());
        const auto squares = device_.values_of<double>(blocks_);
        return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    }

 private:
    static constexpr std::int64_t kBlock = std::int64_t{1} << 16;  // elements

    Device& device_;
    Communicator& communicator_;
    std::optional<NodeShare> share_;
    Tensor sums_;    // f64 [kSquareSums], for the device
    Tensor blocks_;  // f64, the sum of squares of each block; of the node
};

}  // namespace dp::trainer
