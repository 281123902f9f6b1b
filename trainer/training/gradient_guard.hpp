// SPDX-License-Identifier: Apache-2.0
//
// Checks a step's gradients, summed over all ranks, before the optimizer's step: skips NaN or infinite ones
// and clips large ones. All ranks have the same gradients and so decide alike.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/base/partition.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/training/gradient_norm.hpp"

namespace dp::trainer {

// A training ends after this many skipped steps in a row.
inline constexpr std::int64_t kMostBadSteps = 10;

class GradientGuard {
 public:
    // `clip`: the maximum global norm.
    GradientGuard(Device& device, GradientNorm norm, std::optional<double> clip);

    enum class Verdict { usable, bad, one_too_many };
    // Waits for the device. Clips the part of this rank's optimizer, as torch.nn.utils.clip_grad_norm_ does.
    // Every rank calls.
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
