// SPDX-License-Identifier: Apache-2.0
//
// Attention kernels, as functions that queue them on a stream: see device.hpp for what they compute.
// attention.cu has those for f32, tensor_attention.cu those for bf16, which use tensor cores.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// The largest supported head.
inline constexpr std::int64_t kLargestHead = 128;

// f32. `columns` of y.
void attention(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv, float* y,
               float* sums, cudaStream_t stream);
void attention_backward(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv,
                        const float* y, const float* sums, const float* dy, float* d_qkv,
                        cudaStream_t stream);

// bf16.
void tensor_attention(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                      cudaStream_t stream);
void tensor_attention_backward(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                               const Tensor& dy, const Tensor& d_qkv, Workspace& workspace,
                               cudaStream_t stream);

}  // namespace dp::trainer::kernels
