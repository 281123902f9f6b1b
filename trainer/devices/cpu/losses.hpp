// SPDX-License-Identifier: Apache-2.0
//
// Losses of the CPU device with their gradients. Shapes and formulas as in device.hpp.
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                           Out d_logits);
void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction);
void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits);

}  // namespace dp::trainer::cpu
