// SPDX-License-Identifier: Apache-2.0
//
// A block works on one channel: its sums are always added in the same order. T is the type of what flows
// through the model.
#include "trainer/devices/cuda/image_kernels.hpp"

#include <algorithm>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"

namespace dp::trainer::kernels {
namespace {

// The numbers of the block's channel.
struct Channel {
    std::int64_t plane, step, first, rows;
    __device__ Channel(ImageShape shape, std::int64_t images)
        : plane(shape.height * shape.width),
          step(shape.channels * plane),
          first(blockIdx.x * plane),
          rows(images) {}
    __device__ double count() const { return static_cast<double>(rows * plane); }
    // Calls work with the places of those that are this thread's, always the same ones in the same order.
    template <typename Work>
    __device__ void each(Work work) const {
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t i = threadIdx.x; i < plane; i += blockDim.x) work(row * step + first + i);
    }
};

template <typename T>
__global__ void sum_channels_kernel(ImageShape shape, std::int64_t rows, const T* dy, float* db) {
    const Channel at(shape, rows);
    double sum = 0;
    at.each([&](std::int64_t i) { sum += static_cast<double>(read(dy[i])); });
    sum = block_sum(sum);
    if (threadIdx.x == 0) db[blockIdx.x] = static_cast<float>(sum);
}

template <typename T>
__device__ void scale_channel(const Channel& at, const T* x, float factor, float shift, bool relu, T* y) {
    at.each([&](std::int64_t i) {
        const float value = read(x[i]) * factor + shift;
        write(y[i], relu ? fmaxf(value, 0.0f) : value);
    });
}

// Three numbers read and one written a number.
template <typename T>
__global__ void batch_norm_kernel(BatchNorm norm, std::int64_t rows, const T* x, const float* w,
                                  const float* b, float* running, float* saved, T* y) {
    const Channel at(norm.x, rows);
    const std::int64_t c = blockIdx.x, channels = norm.x.channels;
    const double count = at.count();
    double sum = 0;
    at.each([&](std::int64_t i) { sum += static_cast<double>(read(x[i])); });
    const auto mean = static_cast<float>(block_sum(sum) / count);
    double squares = 0;
    at.each([&](std::int64_t i) {
        const float difference = read(x[i]) - mean;
        squares += static_cast<double>(difference * difference);
    });
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

template <typename T>
__global__ void batch_norm_inference_kernel(BatchNorm norm, std::int64_t rows, const T* x, const float* w,
                                            const float* b, const float* running, T* y) {
    const std::int64_t c = blockIdx.x;
    const float factor = w[c] * rsqrtf(running[norm.x.channels + c] + kNormEpsilon);
    scale_channel(Channel(norm.x, rows), x, factor, b[c] - running[c] * factor, norm.relu, y);
}

// Six numbers read and two written a number.
template <typename T>
__global__ void batch_norm_backward_kernel(BatchNorm norm, std::int64_t rows, const T* x, const T* y,
                                           const float* w, const float* saved, const T* dy, T* dx, float* dw,
                                           float* db) {
    const Channel at(norm.x, rows);
    const std::int64_t c = blockIdx.x;
    const float mean = saved[c], scale = saved[norm.x.channels + c];
    double gradient = 0, product = 0;
    at.each([&](std::int64_t i) {
        const float d = !norm.relu || read(y[i]) > 0 ? read(dy[i]) : 0.0f;
        write(dx[i], d);  // exact: it is a number of dy
        gradient += static_cast<double>(d);
        product += static_cast<double>(d * ((read(x[i]) - mean) * scale));
    });
    gradient = block_sum(gradient);
    product = block_sum(product);
    if (threadIdx.x == 0) {
        dw[c] = static_cast<float>(product);
        db[c] = static_cast<float>(gradient);
    }
    const auto mean_gradient = static_cast<float>(gradient / at.count()),
               mean_product = static_cast<float>(product / at.count());
    const float factor = w[c] * scale;
    at.each([&](std::int64_t i) {  // each thread the numbers it wrote
        const float change = mean_gradient + (read(x[i]) - mean) * scale * mean_product;
        write(dx[i], factor * (read(dx[i]) - change));
    });
}

// Blocks in x share the columns, those in y the rows.
template <typename T>
__global__ void copy_columns_kernel(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride,
                                    std::int64_t rows, std::int64_t columns, bool adds) {
    for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        for (std::int64_t column = first_item(); column < columns; column += stride()) {
            T& out = to[row * to_stride + column];
            const float in = read(from[row * from_stride + column]);
            write(out, adds ? read(out) + in : in);
        }
    }
}

unsigned channels_of(ImageShape shape) {
    return static_cast<unsigned>(shape.channels);
}

}  // namespace

void sum_channels(ImageShape shape, const Tensor& dy, const Tensor& db, cudaStream_t stream) {
    with_number(dy.type(), [&](auto number) {
        using T = decltype(number);
        launch(sum_channels_kernel<T>, channels_of(shape), kThreads, stream, shape, dy.rows(), dy.data<T>(),
               db.data<float>());
    });
}

void batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                const Tensor& running, const Tensor& saved, const Tensor& y, cudaStream_t stream) {
    with_number(x.type(), [&](auto number) {
        using T = decltype(number);
        launch(batch_norm_kernel<T>, channels_of(norm.x), kThreads, stream, norm, x.rows(), x.data<T>(),
               w.data<float>(), b.data<float>(), running.data<float>(), saved.data<float>(), y.data<T>());
    });
}

void batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                          const Tensor& running, const Tensor& y, cudaStream_t stream) {
    with_number(x.type(), [&](auto number) {
        using T = decltype(number);
        launch(batch_norm_inference_kernel<T>, channels_of(norm.x), kThreads, stream, norm, x.rows(),
               x.data<T>(), w.data<float>(), b.data<float>(), running.data<float>(), y.data<T>());
    });
}

void batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& y, const Tensor& w,
                         const Tensor& saved, const Tensor& dy, const Tensor& dx, const Tensor& dw,
                         const Tensor& db, cudaStream_t stream) {
    with_number(x.type(), [&](auto number) {
        using T = decltype(number);
        launch(batch_norm_backward_kernel<T>, channels_of(norm.x), kThreads, stream, norm, x.rows(),
               x.data<T>(), y.data<T>(), w.data<float>(), saved.data<float>(), dy.data<T>(), dx.data<T>(),
               dw.data<float>(), db.data<float>());
    });
}

void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                  std::int64_t columns, Write write, cudaStream_t stream) {
    constexpr std::int64_t kMostInY = 65535;
    const dim3 blocks(blocks_for(columns), static_cast<unsigned>(std::min(from.rows(), kMostInY)));
    with_number(from.type(), [&](auto number) {
        using T = decltype(number);
        launch(copy_columns_kernel<T>, blocks, kThreads, stream, from.data<T>() + from_column, from.columns(),
               to.data<T>() + to_column, to.columns(), from.rows(), columns, write == Write::add);
    });
}

}  // namespace dp::trainer::kernels
