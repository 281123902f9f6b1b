// SPDX-License-Identifier: Apache-2.0
//
// A block works on one channel (or, for the loss, one image): its sums are always added in the same order.
#include "trainer/devices/cuda/image_kernels.hpp"

#include "trainer/devices/cuda/launching.cuh"

namespace dp::trainer::kernels {
namespace {

// The numbers of the block's channel.
struct Channel {
    std::int64_t plane, step, first, count;
    __device__ Channel(ImageShape shape, std::int64_t rows)
        : plane(shape.height * shape.width),
          step(shape.channels * plane),
          first(blockIdx.x * plane),
          count(rows * plane) {}
    __device__ std::int64_t operator[](std::int64_t i) const { return i / plane * step + first + i % plane; }
};

__global__ void sum_channels_kernel(ImageShape shape, std::int64_t rows, const float* dy, float* db) {
    const Channel at(shape, rows);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < at.count; i += blockDim.x) sum += static_cast<double>(dy[at[i]]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) db[blockIdx.x] = static_cast<float>(sum);
}

__device__ void scale_channel(const Channel& at, const float* x, float factor, float shift, bool relu,
                              float* y) {
    for (std::int64_t i = threadIdx.x; i < at.count; i += blockDim.x) {
        const float value = x[at[i]] * factor + shift;
        y[at[i]] = relu ? fmaxf(value, 0.0f) : value;
    }
}

// 12 bytes read and 4 written a number.
__global__ void batch_norm_kernel(BatchNorm norm, std::int64_t rows, const float* x, const float* w,
                                  const float* b, float* running, float* saved, float* y) {
    const Channel at(norm.x, rows);
    const std::int64_t c = blockIdx.x, channels = norm.x.channels;
    const auto count = static_cast<double>(at.count);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < at.count; i += blockDim.x) sum += static_cast<double>(x[at[i]]);
    const auto mean = static_cast<float>(block_sum(sum) / count);
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < at.count; i += blockDim.x) {
        const float difference = x[at[i]] - mean;
        squares += static_cast<double>(difference * difference);
    }
    squares = block_sum(squares);
    const auto scale = static_cast<float>(rsqrt(squares / count + static_cast<double>(kNormEpsilon)));
    if (threadIdx.x == 0) {
        saved[c] = mean;
        saved[channels + c] = scale;
        const auto unbiased = static_cast<float>(squares / fmax(count - 1, 1.0));
        running[c] += kNormMomentum * (mean - running[c]);
        running[channels + c] += kNormMomentum * (unbiased - running[channels + c]);
    }
    scale_channel(at, x, w[c] * scale, b[c] - mean * w[c] * scale, norm.relu, y);
}

__global__ void batch_norm_inference_kernel(BatchNorm norm, std::int64_t rows, const float* x, const float* w,
                                            const float* b, const float* running, float* y) {
    const std::int64_t c = blockIdx.x;
    const float factor = w[c] * rsqrtf(running[norm.x.channels + c] + kNormEpsilon);
    scale_channel(Channel(norm.x, rows), x, factor, b[c] - running[c] * factor, norm.relu, y);
}

// 24 bytes read and 8 written a number.
__global__ void batch_norm_backward_kernel(BatchNorm norm, std::int64_t rows, const float* x, const float* y,
                                           const float* w, const float* saved, const float* dy, float* dx,
                                           float* dw, float* db) {
    const Channel at(norm.x, rows);
    const std::int64_t c = blockIdx.x;
    const float mean = saved[c], scale = saved[norm.x.channels + c];
    double gradient = 0, product = 0;
    for (std::int64_t i = threadIdx.x; i < at.count; i += blockDim.x) {
        const std::int64_t here = at[i];
        const float d = !norm.relu || y[here] > 0 ? dy[here] : 0.0f;
        dx[here] = d;
        gradient += static_cast<double>(d);
        product += static_cast<double>(d * ((x[here] - mean) * scale));
    }
    gradient = block_sum(gradient);
    product = block_sum(product);
    if (threadIdx.x == 0) {
        dw[c] = static_cast<float>(product);
        db[c] = static_cast<float>(gradient);
    }
    const auto count = static_cast<double>(at.count);
    const auto mean_gradient = static_cast<float>(gradient / count),
               mean_product = static_cast<float>(product / count);
    const float factor = w[c] * scale;
    for (std::int64_t i = threadIdx.x; i < at.count; i += blockDim.x) {  // each thread the numbers it wrote
        const std::int64_t here = at[i];
        dx[here] = factor * (dx[here] - mean_gradient - (x[here] - mean) * scale * mean_product);
    }
}

// Reads logits and targets twice, writes the gradient once.
__global__ void sigmoid_dice_kernel(const float* logits, const float* target, std::int64_t columns,
                                    float scale, double* metrics, float* gradient) {
    const float *row = logits + blockIdx.x * columns, *wanted = target + blockIdx.x * columns;
    double both = 0, sides = 0, right = 0;  // Σ p t, Σ p + t, numbers on the right side of one half
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        const float p = 1 / (1 + expf(-row[i]));
        both += static_cast<double>(p * wanted[i]);
        sides += static_cast<double>(p + wanted[i]);
        right += (row[i] > 0) == (wanted[i] > 0.5f) ? 1 : 0;
    }
    both = block_sum(both);
    sides = block_sum(sides);
    right = block_sum(right);
    const double above = 2 * both + kDiceSmooth, below = sides + kDiceSmooth;
    if (threadIdx.x == 0) {
        // The order of these additions varies; metrics are for people, and no parameter depends on them.
        atomicAdd(&metrics[0], 1 - above / below);
        atomicAdd(&metrics[1], right / static_cast<double>(columns));
    }
    if (gradient == nullptr) return;
    const auto base = static_cast<float>(static_cast<double>(scale) * above / (below * below));
    const auto slope = static_cast<float>(static_cast<double>(scale) * 2 / below);
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        const float p = 1 / (1 + expf(-row[i]));
        gradient[blockIdx.x * columns + i] = (base - slope * wanted[i]) * p * (1 - p);
    }
}

__global__ void copy_columns_kernel(const float* from, std::int64_t from_stride, float* to,
                                    std::int64_t to_stride, std::int64_t count, std::int64_t columns,
                                    bool adds) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const std::int64_t row = i / columns, column = i % columns;
        float& out = to[row * to_stride + column];
        const float in = from[row * from_stride + column];
        out = adds ? out + in : in;
    }
}

unsigned channels_of(ImageShape shape) {
    return static_cast<unsigned>(shape.channels);
}

}  // namespace

void sum_channels(ImageShape shape, std::int64_t rows, const float* dy, float* db, cudaStream_t stream) {
    sum_channels_kernel<<<channels_of(shape), kThreads, 0, stream>>>(shape, rows, dy, db);
}

void batch_norm(const BatchNorm& norm, std::int64_t rows, const float* x, const float* w, const float* b,
                float* running, float* saved, float* y, cudaStream_t stream) {
    batch_norm_kernel<<<channels_of(norm.x), kThreads, 0, stream>>>(norm, rows, x, w, b, running, saved, y);
}

void batch_norm_inference(const BatchNorm& norm, std::int64_t rows, const float* x, const float* w,
                          const float* b, const float* running, float* y, cudaStream_t stream) {
    batch_norm_inference_kernel<<<channels_of(norm.x), kThreads, 0, stream>>>(norm, rows, x, w, b, running,
                                                                              y);
}

void batch_norm_backward(const BatchNorm& norm, std::int64_t rows, const float* x, const float* y,
                         const float* w, const float* saved, const float* dy, float* dx, float* dw, float* db,
                         cudaStream_t stream) {
    batch_norm_backward_kernel<<<channels_of(norm.x), kThreads, 0, stream>>>(norm, rows, x, y, w, saved, dy,
                                                                             dx, dw, db);
}

void sigmoid_dice(const float* logits, const float* target, std::int64_t rows, std::int64_t columns,
                  float scale, double* metrics, float* gradient, cudaStream_t stream) {
    sigmoid_dice_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, target, columns, scale,
                                                                              metrics, gradient);
}

void copy_columns(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                  std::int64_t rows, std::int64_t columns, Write write, cudaStream_t stream) {
    copy_columns_kernel<<<blocks_for(rows * columns), kThreads, 0, stream>>>(
        from, from_stride, to, to_stride, rows * columns, columns, write == Write::add);
}

}  // namespace dp::trainer::kernels
