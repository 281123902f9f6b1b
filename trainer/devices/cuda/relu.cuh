// SPDX-License-Identifier: Apache-2.0
//
// ReLU in kernels.
#pragma once

namespace dp::trainer::kernels {

// NaN stays NaN; fmaxf would make it 0, and hide that a training diverges. (oneDNN's on CPUs does.)
__device__ inline float relu_of(float number) {
    return number < 0 ? 0.0f : number;
}

}  // namespace dp::trainer::kernels
