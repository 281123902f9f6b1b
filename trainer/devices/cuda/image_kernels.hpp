// SPDX-License-Identifier: Apache-2.0
//
// Image kernels, as functions that queue them on a stream: see kernels.hpp for the conventions and device.hpp
// for what each computes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// Always in the same order.
void sum_channels(ImageShape shape, const Tensor& dy, const Tensor& db, Workspace& workspace,
                  cudaStream_t stream);

void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums, Workspace& workspace,
                     cudaStream_t stream);
void batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& sums, std::int64_t rows,
                const Tensor& w, const Tensor& b, const Tensor& running, const Tensor& saved, const Tensor& y,
                cudaStream_t stream);
void batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                          const Tensor& running, const Tensor& y, cudaStream_t stream);
void batch_norm_backward_sums(const BatchNorm& norm, const Tensor& x, const Tensor& y, const Tensor& saved,
                              const Tensor& dy, const Tensor& dx, const Tensor& sums, const Tensor& dw,
                              const Tensor& db, Workspace& workspace, cudaStream_t stream);
void batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& saved,
                         const Tensor& sums, std::int64_t rows, const Tensor& dx, cudaStream_t stream);

void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                  std::int64_t columns, Write write, cudaStream_t stream);

}  // namespace dp::trainer::kernels
