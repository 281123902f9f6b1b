// SPDX-License-Identifier: Apache-2.0
//
// What the norm of a step's gradients decides: by what they are multiplied, and whether the step is skipped. A device works it out and
// keeps it in its memory, where the optimizer's operations read it, so that the host need not wait for it (Device::clip()).
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/devices/dropout.hpp"

namespace dp::trainer {

struct Clipping {
    double squares;      // of all gradients, added up; the norm is its root
    float factor;        // 1 if they are not clipped
    std::int32_t skips;  // 1 if the norm is NaN or infinite: the step changes nothing; else 0
};

// f64 numbers that it takes in a tensor.
inline constexpr std::int64_t kClipping = 2;
static_assert(sizeof(Clipping) == kClipping * sizeof(double));

// Pure. `largest`: what the norm may be; infinite where gradients are not clipped. As torch.nn.utils.clip_grad_norm_ does.
DP_ON_BOTH_DEVICES inline Clipping clipping_of(double squares, double largest) {
    const double norm = std::sqrt(squares);
    // NaN is neither smaller than a number nor equal to it.
    const bool skips = !(norm < static_cast<double>(INFINITY));
    const bool clips = !skips && norm > largest;
    return {squares, clips ? static_cast<float>(largest / (norm + 1e-6)) : 1.0f, skips ? 1 : 0};
}

}  // namespace dp::trainer
