// SPDX-License-Identifier: Apache-2.0
//
// The trainer's own CUDA kernels, as functions that queue one on a stream. cuda_device.cpp calls them and
// checks cudaGetLastError() afterwards. Activations are f32 or bf16; each function selects the kernel by the
// type of its tensors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// All as devices/device.hpp says, its types included.

void gather(const Tensor& data, const Tensor& indices, Affine affine, const Tensor& out, cudaStream_t stream);

// y[r, c] = row[c], and y = max(y, 0): for linear layers for which cuBLASLt has no fused form. Rows of y, and
// of `in` below, may be longer.
void repeat_row(const Tensor& row, const Tensor& y, cudaStream_t stream);
void relu(const Tensor& y, cudaStream_t stream);
// sum[c] = or += Σ rows in[r, c], always in the same order.
void sum_rows(const Tensor& in, Write write, const Tensor& sum, Workspace& workspace, cudaStream_t stream);
void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, cudaStream_t stream);

// y[r, channel, i] = act(y[r, channel, i] + bias[channel]); bias may be empty.
void add_channel_bias(ImageShape shape, const Tensor& bias, Activation activation, const Tensor& y,
                      cudaStream_t stream);
void max_pool(ImageShape x_shape, const Tensor& x, const Tensor& y, const Tensor& picked,
              cudaStream_t stream);
void max_pool_backward(ImageShape x_shape, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                       cudaStream_t stream);
void dropout(const Tensor& x, Dropout dropout, const Tensor& y, cudaStream_t stream);

void convert(const Tensor& from, const Tensor& to, cudaStream_t stream);
// Converts `count` numbers from one type to another.
void convert(const void* from, Type from_type, void* to, Type to_type, std::int64_t count,
             cudaStream_t stream);
void add(const Tensor& x, const Tensor& y, cudaStream_t stream);
void scale(float* x, std::int64_t count, float factor, cudaStream_t stream);
void square_sum(const float* x, std::int64_t count, double* sums, cudaStream_t stream);
void sgd(float* parameters, const float* gradients, float* velocity, std::int64_t count, SgdStep step,
         cudaStream_t stream);
void adam(float* parameters, const float* gradients, float* m, float* v, std::int64_t count, AdamStep step,
          cudaStream_t stream);

}  // namespace dp::trainer::kernels
