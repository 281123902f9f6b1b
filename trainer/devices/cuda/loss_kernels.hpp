// SPDX-License-Identifier: Apache-2.0
//
// Loss kernels, as functions that queue them on a stream: see kernels.hpp for the conventions and device.hpp
// for what each computes.
#pragma once

#include <cuda_runtime.h>

#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// The gradient may be an empty tensor.
void softmax_cross_entropy(const Tensor& logits, std::int64_t classes, const Tensor& labels, float scale,
                           const Tensor& metrics, const Tensor& gradient, Workspace& workspace,
                           cudaStream_t stream);
void squared_error(const Tensor& prediction, const Tensor& target, float scale, const Tensor& metrics,
                   const Tensor& gradient, Workspace& workspace, cudaStream_t stream);
void sigmoid_dice(const Tensor& logits, const Tensor& target, float scale, const Tensor& metrics,
                  const Tensor& gradient, Workspace& workspace, cudaStream_t stream);

}  // namespace dp::trainer::kernels
