// SPDX-License-Identifier: Apache-2.0
//
// The norm of a step's gradients, all ranks' and all of them together: for the guard (gradient_guard.hpp) and
// the logs (stepper.cpp). Where the ranks of a node have that sum once, each adds up the squares of some
// blocks of it. Where the blocks end does not depend on the ranks, so that all nodes come to the same bits.
#ifndef TRAINER_TRAINING_GRADIENT_NORM_HPP
#define TRAINER_TRAINING_GRADIENT_NORM_HPP

#include <cstdint>
#include <optional>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Numbers of a block.
inline constexpr std::int64_t kNormBlock = std::int64_t{1} << 16;

class GradientNorm {
 public:
    // Of so many gradients. Every rank makes one.
    GradientNorm(Device& device, Communicator& communicator, std::int64_t gradients);

    // Waits for the device. Every rank calls; then they may all write to the gradients.
    Result<double> of(const Tensor& gradients);

 private:
    Device& device_;
    Communicator& communicator_;
    std::optional<NodeShare> share_;
    Tensor sums_;    // f64 [kSquareSums], for the device
    Tensor blocks_;  // f64, the sum of squares of each block; of the node
};

}  // namespace dp::trainer

#endif
