// SPDX-License-Identifier: Apache-2.0
//
// The kernels of operations on images, as functions that queue them on a stream: see kernels.hpp for the
// manner and device.hpp for what each computes.
#ifndef TRAINER_DEVICES_CUDA_IMAGE_KERNELS_HPP
#define TRAINER_DEVICES_CUDA_IMAGE_KERNELS_HPP

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// db[channel] = Σ dy[row, channel, i], always in the same order.
void sum_channels(ImageShape shape, std::int64_t rows, const float* dy, float* db, cudaStream_t stream);

void batch_norm(const BatchNorm& norm, std::int64_t rows, const float* x, const float* w, const float* b,
                float* running, float* saved, float* y, cudaStream_t stream);
void batch_norm_inference(const BatchNorm& norm, std::int64_t rows, const float* x, const float* w,
                          const float* b, const float* running, float* y, cudaStream_t stream);
void batch_norm_backward(const BatchNorm& norm, std::int64_t rows, const float* x, const float* y,
                         const float* w, const float* saved, const float* dy, float* dx, float* dw, float* db,
                         cudaStream_t stream);

// `gradient` may be null.
void sigmoid_dice(const float* logits, const float* target, std::int64_t rows, std::int64_t columns,
                  float scale, double* metrics, float* gradient, cudaStream_t stream);

// Rows of `from` lie from_stride numbers apart, those of `to` to_stride.
void copy_columns(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                  std::int64_t rows, std::int64_t columns, Write write, cudaStream_t stream);

}  // namespace dp::trainer::kernels

#endif
