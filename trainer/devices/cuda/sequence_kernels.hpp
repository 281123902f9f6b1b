// SPDX-License-Identifier: Apache-2.0
//
// The kernels of operations on sequences, as functions that queue them on a stream: see kernels.hpp for the
// manner and device.hpp for what each computes.
#ifndef TRAINER_DEVICES_CUDA_SEQUENCE_KERNELS_HPP
#define TRAINER_DEVICES_CUDA_SEQUENCE_KERNELS_HPP

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// The largest head that attention takes.
inline constexpr std::int64_t kLargestHead = 128;

void gelu(const float* x, std::int64_t count, float* y, cudaStream_t stream);
void gelu_backward(const float* x, const float* dy, std::int64_t count, float* dx, cudaStream_t stream);

void embed(const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence, const float* table,
           const float* positions, std::int64_t columns, float* y, cudaStream_t stream);
void embed_backward(const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence, const float* dy,
                    std::int64_t columns, float* d_table, float* d_positions, cudaStream_t stream);

void layer_norm(const float* x, std::int64_t rows, std::int64_t columns, const float* w, const float* b,
                float* y, float* saved, cudaStream_t stream);
void layer_norm_backward(const float* x, std::int64_t rows, std::int64_t columns, const float* w,
                         const float* saved, const float* dy, float* dx, float* dw, float* db,
                         cudaStream_t stream);

// Heads of up to kLargestHead numbers; `columns` of y.
void attention(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv, float* y,
               float* sums, cudaStream_t stream);
void attention_backward(const Attention& a, std::int64_t rows, std::int64_t columns, const float* qkv,
                        const float* y, const float* sums, const float* dy, float* d_qkv,
                        cudaStream_t stream);

}  // namespace dp::trainer::kernels

#endif
