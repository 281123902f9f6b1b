// SPDX-License-Identifier: Apache-2.0
//
// The trainer's own CUDA kernels, as functions that queue one on a stream. cuda_device.cpp calls them and
// checks what cudaGetLastError() says afterwards. Sizes are elements unless named otherwise; matrices are
// row-major.
#ifndef TRAINER_DEVICES_CUDA_KERNELS_HPP
#define TRAINER_DEVICES_CUDA_KERNELS_HPP

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// out[r, c] = in[indices[r], c] * scale + shift. Reads rows*columns inputs, writes as many outputs.
void gather(const std::uint8_t* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            Affine affine, float* out, cudaStream_t stream);
void gather(const float* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            Affine affine, float* out, cudaStream_t stream);
void gather(const std::int32_t* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            std::int32_t* out, cudaStream_t stream);
void gather(const std::uint16_t* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            std::int32_t* out, cudaStream_t stream);

// y[r, c] = act(y[r, c] + bias[c]): where cuBLASLt has no fused form.
void add_bias(float* y, const float* bias, std::int64_t rows, std::int64_t columns, Activation activation,
              cudaStream_t stream);
// sum[c] = Σ rows in[r, c], or that more, always in the same order.
void sum_rows(const float* in, std::int64_t rows, std::int64_t columns, Write write, float* sum,
              cudaStream_t stream);
// dx = y > 0 ? dy : 0; dx may be dy.
void relu_backward(const float* y, const float* dy, std::int64_t count, float* dx, cudaStream_t stream);

// As devices/device.hpp says; `gradient` may be null.
void softmax_cross_entropy(const float* logits, const std::int32_t* labels, std::int64_t rows,
                           std::int64_t classes, float scale, double* metrics, float* gradient,
                           cudaStream_t stream);
void squared_error(const float* prediction, const float* target, std::int64_t rows, std::int64_t columns,
                   float scale, double* metrics, float* gradient, cudaStream_t stream);

// y[r, channel, i] = act(y[r, channel, i] + bias[channel]); `plane`: numbers of a channel.
void add_channel_bias(float* y, const float* bias, std::int64_t count, std::int64_t channels,
                      std::int64_t plane, Activation activation, cudaStream_t stream);
// As devices/device.hpp says. `rows` images.
void max_pool(ImageShape x_shape, std::int64_t rows, const float* x, float* y, std::uint8_t* picked,
              cudaStream_t stream);
void max_pool_backward(ImageShape x_shape, std::int64_t rows, const float* dy, const std::uint8_t* picked,
                       float* dx, cudaStream_t stream);
void dropout(const float* x, std::int64_t count, std::int64_t columns, Dropout dropout, float* y,
             cudaStream_t stream);

void add(const float* x, std::int64_t count, float* y, cudaStream_t stream);
void scale(float* x, std::int64_t count, float factor, cudaStream_t stream);
void square_sum(const float* x, std::int64_t count, double* sums, cudaStream_t stream);
void sgd(float* parameters, const float* gradients, float* velocity, std::int64_t count, SgdStep step,
         cudaStream_t stream);
void adam(float* parameters, const float* gradients, float* m, float* v, std::int64_t count, AdamStep step,
          cudaStream_t stream);

}  // namespace dp::trainer::kernels

#endif
