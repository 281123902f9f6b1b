// SPDX-License-Identifier: Apache-2.0
//
// Looks at a step's gradients, all ranks' together, before the step is made: what is no number is left out,
// what is too large is scaled down. All ranks have the same gradients and so come to the same.
#ifndef TRAINER_TRAINING_GRADIENT_GUARD_HPP
#define TRAINER_TRAINING_GRADIENT_GUARD_HPP

#include <cstdint>
#include <optional>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

// After so many bad steps in a row a training ends.
inline constexpr std::int64_t kMostBadSteps = 10;

// The norm of all gradients together. Waits for the device. `sums`: f64 [kSquareSums], for its use.
double norm_of(const Tensor& gradients, Device& device, const Tensor& sums);

class GradientGuard {
 public:
    // `clip`: the largest norm of all gradients together.
    GradientGuard(Device& device, std::optional<double> clip);

    enum class Verdict { usable, bad, one_too_many };
    // Waits for the device. Clips as torch.nn.utils.clip_grad_norm_ does.
    Verdict look(const Tensor& gradients);

    double norm() const { return norm_; }  // of those it looked at last, before they were clipped

    // For checkpoints.
    std::int64_t bad_in_a_row() const { return bad_in_a_row_; }
    void resume(std::int64_t bad_in_a_row) { bad_in_a_row_ = bad_in_a_row; }

 private:
    Device& device_;
    std::optional<double> clip_;
    Tensor sums_;
    double norm_ = 0;
    std::int64_t bad_in_a_row_ = 0;
};

}  // namespace dp::trainer

#endif
