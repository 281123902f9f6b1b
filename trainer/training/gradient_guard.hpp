// SPDX-License-Identifier: Apache-2.0
//
// Looks at a step's gradients, all ranks' together, before the step is made: what is no number is left out,
// what is too large is scaled down. All ranks have the same gradients and so come to the same.
#ifndef TRAINER_TRAINING_GRADIENT_GUARD_HPP
#define TRAINER_TRAINING_GRADIENT_GUARD_HPP

#include <cstdint>
#include <optional>

#include "trainer/base/partition.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/training/gradient_norm.hpp"

namespace dp::trainer {

// After so many bad steps in a row a training ends.
inline constexpr std::int64_t kMostBadSteps = 10;

class GradientGuard {
 public:
    // `clip`: the largest norm of all gradients together.
    GradientGuard(Device& device, GradientNorm norm, std::optional<double> clip);

    enum class Verdict { usable, bad, one_too_many };
    // Waits for the device. Clips as torch.nn.utils.clip_grad_norm_ does, the part that this rank's optimizer
    // takes. Every rank calls.
    Result<Verdict> look(const Tensor& gradients, const Shard& part);

    double norm() const { return last_norm_; }  // of those it looked at last, before they were clipped

    // For checkpoints.
    std::int64_t bad_in_a_row() const { return bad_in_a_row_; }
    void resume(std::int64_t bad_in_a_row) { bad_in_a_row_ = bad_in_a_row; }

 private:
    Device& device_;
    GradientNorm norm_;
    std::optional<double> clip_;
    double last_norm_ = 0;
    std::int64_t bad_in_a_row_ = 0;
};

}  // namespace dp::trainer

#endif
