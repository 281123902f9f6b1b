// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CPU device with their gradients. Shapes and formulas as in device.hpp.
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

void softmax_cross_entropy(const Tensor& logits, std::int64_t classes, const Tensor& labels, float scale,
                           const Tensor& metrics, const Tensor& d_logits);
void squared_error(const Tensor& prediction, const Tensor& target, float scale, const Tensor& metrics,
                   const Tensor& d_prediction);
void sigmoid_dice(const Tensor& logits, const Tensor& target, float scale, const Tensor& metrics,
                  const Tensor& d_logits);

}  // namespace dp::trainer::cpu
