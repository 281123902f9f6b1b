// SPDX-License-Identifier: Apache-2.0
//
// Layer norm and batch norm of the CPU device. Shapes and formulas as in device.hpp.
#pragma once

#include "trainer/devices/device.hpp"

namespace dp::trainer::cpu {

// Exact to float32's rounding for any count.
double sum_of(const float* x, std::int64_t count);

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y, const Tensor& saved);
void layer_norm_backward(const Tensor& x, const Tensor& w, const Tensor& saved, const Tensor& dy,
                         const Tensor& dx, const Tensor& dw, const Tensor& db);

void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums);
void batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& sums, std::int64_t rows,
                const Tensor& w, const Tensor& b, const Tensor& running, const Tensor& saved,
                const Tensor& y);
void batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                          const Tensor& running, const Tensor& y);
void batch_norm_backward_sums(const BatchNorm& norm, const Tensor& x, const Tensor& y, const Tensor& saved,
                              const Tensor& dy, const Tensor& dx, const Tensor& sums, const Tensor& dw,
                              const Tensor& db);
void batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& saved,
                         const Tensor& sums, std::int64_t rows, const Tensor& dx);

}  // namespace dp::trainer::cpu
