// SPDX-License-Identifier: Apache-2.0
//
// Conversion between bfloat16 and float32 on the CPU device's threads and vector units.
#ifndef TRAINER_DEVICES_CPU_BFLOAT16_HPP
#define TRAINER_DEVICES_CPU_BFLOAT16_HPP

#include "trainer/base/tensor.hpp"

namespace dp::trainer::cpu {

// As Device::convert().
void convert(const Tensor& from, const Tensor& to);

}  // namespace dp::trainer::cpu

#endif
