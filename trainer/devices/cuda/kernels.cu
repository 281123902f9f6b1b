// SPDX-License-Identifier: Apache-2.0
//
// The trainer's own CUDA kernels: see kernels.hpp. All of them are bound by memory traffic; each says what it
// moves.
#include "trainer/devices/cuda/kernels.hpp"

#include "trainer/devices/cuda/launching.cuh"

namespace dp::trainer::kernels {
namespace {

__device__ float convert(float value, Affine affine) {
    return value * affine.scale + affine.shift;
}
__device__ float convert(std::uint8_t value, Affine affine) {
    return static_cast<float>(value) * affine.scale + affine.shift;
}
__device__ std::int32_t convert(std::int32_t value, Affine) {
    return value;
}
__device__ std::int32_t convert(std::uint16_t value, Affine) {
    return value;
}

// Reads and writes each element once; neighbours in a row are neighbours in memory.
template <typename In, typename Out>
__global__ void gather_kernel(const In* in, const std::int32_t* indices, std::int64_t count,
                              std::int64_t columns, Affine affine, Out* out) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const std::int64_t row = i / columns, column = i % columns;
        out[i] = convert(in[indices[row] * columns + column], affine);
    }
}

__global__ void add_bias_kernel(float* y, const float* bias, std::int64_t count, std::int64_t columns,
                                bool relu) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float sum = y[i] + bias[i % columns];
        y[i] = relu ? fmaxf(sum, 0.0f) : sum;
    }
}

// A block of 32 x 8 threads sums 32 columns: a warp reads 32 neighbours, its eight warps share the rows, then
// the first warp adds the eight parts in a fixed order.
constexpr int kSumColumns = 32, kSumParts = 8;
__global__ void sum_rows_kernel(const float* in, std::int64_t rows, std::int64_t columns, bool adds,
                                float* sum) {
    __shared__ float parts[kSumParts][kSumColumns];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
    float part = 0;
    if (column < columns) {
        for (std::int64_t row = threadIdx.y; row < rows; row += kSumParts) part += in[row * columns + column];
    }
    parts[threadIdx.y][threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    float total = 0;
    for (int i = 0; i < kSumParts; ++i) total += parts[i][threadIdx.x];
    sum[column] = adds ? sum[column] + total : total;
}

__global__ void relu_backward_kernel(const float* y, const float* dy, std::int64_t count, float* dx) {
    for (std::int64_t i = first_item(); i < count; i += stride()) dx[i] = y[i] > 0 ? dy[i] : 0.0f;
}

// A thread a row: the classes are few. Reads the logits three times from cache, writes the gradient once.
__global__ void softmax_cross_entropy_kernel(const float* logits, const std::int32_t* labels,
                                             std::int64_t rows, std::int64_t classes, float scale,
                                             double* metrics, float* gradient) {
    double loss = 0, correct = 0;
    for (std::int64_t r = first_item(); r < rows; r += stride()) {
        const float* row = logits + r * classes;
        const std::int32_t label = labels[r];
        std::int64_t best = 0;
        for (std::int64_t c = 1; c < classes; ++c) best = row[c] > row[best] ? c : best;
        const float largest = row[best];
        float total = 0;
        for (std::int64_t c = 0; c < classes; ++c) total += expf(row[c] - largest);
        loss += static_cast<double>(logf(total) - (row[label] - largest));
        correct += best == label ? 1 : 0;
        if (gradient == nullptr) continue;
        for (std::int64_t c = 0; c < classes; ++c) {
            gradient[r * classes + c] = scale * (expf(row[c] - largest) / total - (c == label ? 1.0f : 0.0f));
        }
    }
    loss = warp_sum(loss);
    correct = warp_sum(correct);
    if (threadIdx.x % 32 != 0) return;
    // The order of these additions varies; metrics are for people, and no parameter depends on them.
    atomicAdd(&metrics[0], loss);
    atomicAdd(&metrics[1], correct);
}

// A block a row: the classes are many. Reads the logits three times, writes the gradient once, which may lie
// where they lie.
__global__ void wide_cross_entropy_kernel(const float* logits, const std::int32_t* labels,
                                          std::int64_t classes, float scale, double* metrics,
                                          float* gradient) {
    const float* row = logits + blockIdx.x * classes;
    const std::int32_t label = labels[blockIdx.x];
    __shared__ float warps[kThreads / 32];
    float largest = -INFINITY;
    for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) largest = fmaxf(largest, row[c]);
    largest = warp_max_all(largest);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
    __syncthreads();
    for (float warp : warps) largest = fmaxf(largest, warp);
    double sum = 0, before = 0;  // before: largest ones in front of the label
    for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
        sum += static_cast<double>(expf(row[c] - largest));
        before += c < label && row[c] == largest ? 1 : 0;
    }
    const auto total = static_cast<float>(block_sum(sum));
    before = block_sum(before);
    const float own = row[label];
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&metrics[0], static_cast<double>(logf(total) - (own - largest)));
        atomicAdd(&metrics[1], own == largest && before == 0 ? 1.0 : 0.0);
    }
    if (gradient == nullptr) return;
    for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x)
        gradient[blockIdx.x * classes + c] =
            scale * (expf(row[c] - largest) / total - (c == label ? 1.0f : 0.0f));
}

__global__ void squared_error_kernel(const float* prediction, const float* target, std::int64_t count,
                                     float columns, float scale, double* metrics, float* gradient) {
    double loss = 0;
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float difference = prediction[i] - target[i];
        loss += static_cast<double>(difference) * difference / columns;
        if (gradient != nullptr) gradient[i] = scale * 2 * difference / columns;
    }
    loss = warp_sum(loss);
    if (threadIdx.x % 32 == 0) atomicAdd(&metrics[0], loss);
}

__global__ void add_channel_bias_kernel(float* y, const float* bias, std::int64_t count,
                                        std::int64_t channels, std::int64_t plane, bool relu) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float sum = y[i] + bias[i / plane % channels];
        y[i] = relu ? fmaxf(sum, 0.0f) : sum;
    }
}

// Where the 2 x 2 numbers of an output begin: of output number `to`.
__device__ std::int64_t window_of(std::int64_t to, std::int64_t height, std::int64_t width) {
    const std::int64_t columns = width / 2, lines = height / 2;
    const std::int64_t column = to % columns, line = to / columns % lines, plane = to / columns / lines;
    return (plane * height + 2 * line) * width + 2 * column;
}

// 16 bytes read and 5 written an output.
__global__ void max_pool_kernel(const float* x, std::int64_t count, std::int64_t height, std::int64_t width,
                                float* y, std::uint8_t* picked) {
    for (std::int64_t to = first_item(); to < count; to += stride()) {
        const std::int64_t from = window_of(to, height, width);
        float largest = x[from];
        int best = 0;
        for (int i = 1; i < 4; ++i) {
            const float value = x[from + i % 2 + i / 2 * width];
            if (value > largest) {
                largest = value;
                best = i;
            }
        }
        y[to] = largest;
        picked[to] = static_cast<std::uint8_t>(best);
    }
}

// dx is zero where nothing is written.
__global__ void max_pool_backward_kernel(const float* dy, const std::uint8_t* picked, std::int64_t count,
                                         std::int64_t height, std::int64_t width, float* dx) {
    for (std::int64_t to = first_item(); to < count; to += stride()) {
        const int best = picked[to];
        dx[window_of(to, height, width) + best % 2 + best / 2 * width] = dy[to];
    }
}

__global__ void dropout_kernel(const float* x, std::int64_t count, std::int64_t columns, Dropout dropout,
                               float scale, float* y) {
    for (std::int64_t i = first_item(); i < count; i += stride())
        y[i] = is_kept(dropout, columns, i) ? x[i] * scale : 0.0f;
}

__global__ void add_kernel(const float* x, std::int64_t count, float* y) {
    for (std::int64_t i = first_item(); i < count; i += stride()) y[i] += x[i];
}

__global__ void scale_kernel(float* x, std::int64_t count, float factor) {
    for (std::int64_t i = first_item(); i < count; i += stride()) x[i] *= factor;
}

// Each block its part, by a grid of fixed size, and then a warp the parts: always in the same order.
__global__ void square_parts_kernel(const float* x, std::int64_t count, double* parts) {
    __shared__ double warps[kThreads / 32];
    double sum = 0;
    for (std::int64_t i = first_item(); i < count; i += stride())
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double total = 0;
    for (int i = 0; i < kThreads / 32; ++i) total += warps[i];
    parts[blockIdx.x] = total;
}

__global__ void sum_parts_kernel(const double* parts, int count, double* sum) {
    double part = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) part += parts[i];
    part = warp_sum(part);
    if (threadIdx.x == 0) *sum = part;
}

// 12 bytes read and 8 written an element.
__global__ void sgd_kernel(float* parameters, const float* gradients, float* velocity, std::int64_t count,
                           SgdStep step) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float u = step.momentum * velocity[i] + gradients[i] + step.decay * parameters[i];
        velocity[i] = u;
        parameters[i] -= step.rate * u;
    }
}

// 16 bytes read and 12 written an element.
__global__ void adam_kernel(float* parameters, const float* gradients, float* m, float* v, std::int64_t count,
                            AdamStep step) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float gradient = gradients[i];
        const float first = step.beta1 * m[i] + (1 - step.beta1) * gradient;
        const float second = step.beta2 * v[i] + (1 - step.beta2) * gradient * gradient;
        m[i] = first;
        v[i] = second;
        parameters[i] =
            step.keep * parameters[i] - step.rate * first / (sqrtf(second) * step.root_scale + step.epsilon);
    }
}

}  // namespace

void gather(const std::uint8_t* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            Affine affine, float* out, cudaStream_t stream) {
    gather_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(in, indices, rows * columns, columns,
                                                                       affine, out);
}

void gather(const float* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            Affine affine, float* out, cudaStream_t stream) {
    gather_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(in, indices, rows * columns, columns,
                                                                       affine, out);
}

void gather(const std::int32_t* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            std::int32_t* out, cudaStream_t stream) {
    gather_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(in, indices, rows * columns, columns,
                                                                       Affine{}, out);
}

void gather(const std::uint16_t* in, const std::int32_t* indices, std::int64_t rows, std::int64_t columns,
            std::int32_t* out, cudaStream_t stream) {
    gather_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(in, indices, rows * columns, columns,
                                                                       Affine{}, out);
}

void add_bias(float* y, const float* bias, std::int64_t rows, std::int64_t columns, Activation activation,
              cudaStream_t stream) {
    add_bias_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(y, bias, rows * columns, columns,
                                                                         activation == Activation::relu);
}

void sum_rows(const float* in, std::int64_t rows, std::int64_t columns, Write write, float* sum,
              cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>((columns + kSumColumns - 1) / kSumColumns);
    sum_rows_kernel<<<blocks, dim3(kSumColumns, kSumParts), 0, stream>>>(in, rows, columns,
                                                                         write == Write::add, sum);
}

void relu_backward(const float* y, const float* dy, std::int64_t count, float* dx, cudaStream_t stream) {
    relu_backward_kernel<<<blocks_for(count), kThreads, 0, stream>>>(y, dy, count, dx);
}

void softmax_cross_entropy(const float* logits, const std::int32_t* labels, std::int64_t rows,
                           std::int64_t classes, float scale, double* metrics, float* gradient,
                           cudaStream_t stream) {
    constexpr std::int64_t kFewClasses = 64;
    if (classes > kFewClasses) {
        wide_cross_entropy_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
            logits, labels, classes, scale, metrics, gradient);
        return;
    }
    softmax_cross_entropy_kernel<<<blocks_for(rows), kThreads, 0, stream>>>(logits, labels, rows, classes,
                                                                            scale, metrics, gradient);
}

void squared_error(const float* prediction, const float* target, std::int64_t rows, std::int64_t columns,
                   float scale, double* metrics, float* gradient, cudaStream_t stream) {
    squared_error_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(
        prediction, target, rows * columns, static_cast<float>(columns), scale, metrics, gradient);
}

void add_channel_bias(float* y, const float* bias, std::int64_t count, std::int64_t channels,
                      std::int64_t plane, Activation activation, cudaStream_t stream) {
    add_channel_bias_kernel<<<blocks_for(count), kThreads, 0, stream>>>(y, bias, count, channels, plane,
                                                                        activation == Activation::relu);
}

void max_pool(ImageShape x_shape, std::int64_t rows, const float* x, float* y, std::uint8_t* picked,
              cudaStream_t stream) {
    const std::int64_t count = rows * x_shape.channels * (x_shape.height / 2) * (x_shape.width / 2);
    max_pool_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, count, x_shape.height, x_shape.width, y,
                                                                picked);
}

void max_pool_backward(ImageShape x_shape, std::int64_t rows, const float* dy, const std::uint8_t* picked,
                       float* dx, cudaStream_t stream) {
    const std::int64_t count = rows * x_shape.channels * (x_shape.height / 2) * (x_shape.width / 2);
    max_pool_backward_kernel<<<blocks_for(count), kThreads, 0, stream>>>(dy, picked, count, x_shape.height,
                                                                         x_shape.width, dx);
}

void dropout(const float* x, std::int64_t count, std::int64_t columns, Dropout dropout, float* y,
             cudaStream_t stream) {
    dropout_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, count, columns, dropout,
                                                               1 / (1 - dropout.rate), y);
}

void add(const float* x, std::int64_t count, float* y, cudaStream_t stream) {
    add_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, count, y);
}

void scale(float* x, std::int64_t count, float factor, cudaStream_t stream) {
    scale_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, count, factor);
}

void square_sum(const float* x, std::int64_t count, double* sums, cudaStream_t stream) {
    constexpr int kParts = static_cast<int>(kSquareSums) - 1;
    square_parts_kernel<<<kParts, kThreads, 0, stream>>>(x, count, sums + 1);
    sum_parts_kernel<<<1, 32, 0, stream>>>(sums + 1, kParts, sums);
}

void sgd(float* parameters, const float* gradients, float* velocity, std::int64_t count, SgdStep step,
         cudaStream_t stream) {
    sgd_kernel<<<blocks_for(count), kThreads, 0, stream>>>(parameters, gradients, velocity, count, step);
}

void adam(float* parameters, const float* gradients, float* m, float* v, std::int64_t count, AdamStep step,
          cudaStream_t stream) {
    adam_kernel<<<blocks_for(count), kThreads, 0, stream>>>(parameters, gradients, m, v, count, step);
}

}  // namespace dp::trainer::kernels
