// SPDX-License-Identifier: Apache-2.0
//
// The global norm of a step's gradients, for train_step.cpp. If the ranks of a node share the summed gradients,
// each adds up the squares of some blocks. The blocks do not depend on the ranks, so all nodes get the same
// bits.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Elements per block.
inline constexpr std::int64_t kNormBlock = std::int64_t{1} << 16;

class GradientNorm {
 public:
    // For that many gradients. Every rank makes one.
    GradientNorm(Device& device, Communicator& communicator, std::int64_t gradients);

    // Waits for the device. Every rank calls; afterwards all may write to the gradients.
    Result<double> of(const Tensor& gradients);

 private:
    Device& device_;
    Communicator& communicator_;
    std::optional<NodeShare> share_;
    Tensor sums_;    // f64 [kSquareSums], for the device
    Tensor blocks_;  // f64, the sum of squares of each block; of the node
};

}  // namespace dp::trainer
