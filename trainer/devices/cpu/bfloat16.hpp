// SPDX-License-Identifier: Apache-2.0
//
// Conversion between bfloat16 and float32 on the CPU device's threads and vector units.
#pragma once

#include "trainer/base/tensor.hpp"

namespace dp::trainer::cpu {

// As Device::convert().
void convert(const Tensor& from, const Tensor& to);

}  // namespace dp::trainer::cpu
