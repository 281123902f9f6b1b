// SPDX-License-Identifier: Apache-2.0
//
// Layer norm of the CPU device, and batch norm and biases of the channels of images. Shapes and formulas as
// in device.hpp.
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

void layer_norm(In x, In w, In b, Out y, Out saved);
void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db);

void add_channels(ImageShape shape, In b, InOut y);
void sum_channels(ImageShape shape, In dy, Out db);
void batch_norm_sums(const BatchNorm& norm, In x, Out sums);
void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b, InOut running, Out saved,
                Out y);
void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y);
void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums, Out dw,
                              Out db);
void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows, InOut dx);

}  // namespace dp::trainer::cpu
