// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/gradient_norm.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dp::trainer {

GradientNorm::GradientNorm(Device& device, Communicator& communicator, std::int64_t gradients)
    : device_(device),
      communicator_(communicator),
      share_(communicator.node_share()),
      sums_(device.make(Type::f64, {kSquareSums})) {
    if (share_) blocks_ = device.make_of_node(Type::f64, {(gradients + kNormBlock - 1) / kNormBlock});
}

Result<double> GradientNorm::of(const Tensor& gradients) {
    if (!share_) {
        device_.square_sum(gradients, sums_);
        return std::sqrt(device_.values_of<double>(sums_.first_rows(1))[0]);
    }
    DP_TRY(device_.status());
    const std::int64_t blocks = blocks_.elements();
    const Shard mine = shard_of(blocks, share_->index, share_->ranks);
    for (std::int64_t block = mine.first; block < mine.first + mine.count; ++block) {
        const std::int64_t first = block * kNormBlock;
        device_.square_sum(gradients.view(first, {std::min(kNormBlock, gradients.elements() - first)}),
                           sums_);
        device_.upload(device_.values_of<double>(sums_.first_rows(1)).data(), blocks_.view(block, {1}));
    }
    DP_TRY(communicator_.node_barrier());
    const auto squares = device_.values_of<double>(blocks_);
    return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

}  // namespace dp::trainer
