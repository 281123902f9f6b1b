// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's operations on the channels of images, with their kernels. If there are few large channels,
// several blocks work on each: one kernel writes the sums of their parts, and the next adds these up, always
// in the same order. T is the type of the activations.
#include <algorithm>

#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/relu.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

// The block's part of its channel: a piece of that channel's plane, of all images.
struct Channel {
    std::int64_t plane, step, first, begin, end, rows;
    __device__ Channel(ImageShape shape, std::int64_t images)
        : plane(shape.height * shape.width),
          step(shape.channels * plane),
          first(blockIdx.x * plane),
          begin(plane * blockIdx.y / gridDim.y),
          end(plane * (blockIdx.y + 1) / gridDim.y),
          rows(images) {}
    // The number of elements of the whole channel.
    __device__ double count() const { return static_cast<double>(rows * plane); }
    // Calls `work` with the indices of this thread's elements, always the same ones in the same order.
    template <typename Work>
    __device__ void each(Work work) const {
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) work(row * step + first + i);
    }
};

// Stores this block's part of a sum in parts [channels, gridDim.y].
__device__ void store_part(double* parts, double thread_sum) {
    const double sum = block_sum(thread_sum);
    if (threadIdx.x == 0) parts[static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = sum;
}
__device__ double sum_of_parts(const double* all, std::int64_t channel, int parts) {
    double sum = 0;
    for (int part = 0; part < parts; ++part) sum += all[channel * parts + part];
    return sum;
}

template <typename T>
__global__ void sum_channels_kernel(ImageShape shape, std::int64_t rows, const T* x, double* sums) {
    double sum = 0;
    Channel(shape, rows).each([&](std::int64_t i) { sum += static_cast<double>(read(x[i])); });
    store_part(sums, sum);
}

__global__ void add_channel_parts_kernel(const double* sums, std::int64_t channels, int parts, float* db) {
    for (std::int64_t c = first_item(); c < channels; c += stride())
        db[c] = static_cast<float>(sum_of_parts(sums, c, parts));
}

template <typename T>
__device__ void scale_channel(const Channel& at, const T* x, float factor, float shift, bool relu, T* y) {
    at.each([&](std::int64_t i) {
        const float value = read(x[i]) * factor + shift;
        write(y[i], relu ? relu_of(value) : value);
    });
}

// Σ (x - mean)², the mean being that of the numbers that `sums` adds up.
template <typename T>
__global__ void channel_squares_kernel(ImageShape shape, std::int64_t rows, const T* x, const double* sums,
                                       double* squares) {
    const Channel at(shape, rows);
    const auto mean =
        static_cast<float>(sum_of_parts(sums, blockIdx.x, static_cast<int>(gridDim.y)) / at.count());
    double sum = 0;
    at.each([&](std::int64_t i) {
        const float difference = read(x[i]) - mean;
        sum += static_cast<double>(difference * difference);
    });
    store_part(squares, sum);
}

// moments [2, channels]: Σ x and Σ x² of `count` numbers, of what the two kernels above have left.
__global__ void add_moments_kernel(const double* sums, const double* squares, std::int64_t channels,
                                   int parts, double count, double* moments) {
    for (std::int64_t c = first_item(); c < channels; c += stride()) {
        const double sum = sum_of_parts(sums, c, parts);
        const auto mean = static_cast<double>(static_cast<float>(sum / count));
        moments[c] = sum;
        moments[channels + c] = sum_of_parts(squares, c, parts) + mean * (2 * sum - count * mean);
    }
}

// `count`: numbers of a channel in the whole batch, whose moments these are.
template <typename T>
__global__ void batch_norm_kernel(BatchNorm norm, std::int64_t rows, const T* x, const double* moments,
                                  double count, const float* w, const float* b, float* running, float* saved,
                                  T* y) {
    const std::int64_t c = blockIdx.x, channels = norm.x.channels;
    const double middle = moments[c] / count, difference = moments[channels + c] / count - middle * middle,
                 variance = difference < 0 ? 0 : difference;  // also if it is NaN
    const auto mean = static_cast<float>(middle);
    const auto scale = static_cast<float>(rsqrt(variance + static_cast<double>(kNormEpsilon)));
    if (blockIdx.y == 0 && threadIdx.x == 0) {  // once per channel
        saved[c] = mean;
        saved[channels + c] = scale;
        const auto unbiased = static_cast<float>(variance * count / fmax(count - 1, 1.0));
        if (isfinite(mean) && isfinite(unbiased)) {
            running[c] += kNormMomentum * (mean - running[c]);
            running[channels + c] += kNormMomentum * (unbiased - running[channels + c]);
        }
    }
    scale_channel(Channel(norm.x, rows), x, w[c] * scale, b[c] - mean * w[c] * scale, norm.relu, y);
}

template <typename T>
__global__ void batch_norm_inference_kernel(BatchNorm norm, std::int64_t rows, const T* x, const float* w,
                                            const float* b, const float* running, T* y) {
    const std::int64_t c = blockIdx.x;
    const float factor = w[c] * rsqrtf(running[norm.x.channels + c] + kNormEpsilon);
    scale_channel(Channel(norm.x, rows), x, factor, b[c] - running[c] * factor, norm.relu, y);
}

// Writes to dx the gradient behind ReLU.
template <typename T>
__global__ void batch_norm_backward_sums_kernel(BatchNorm norm, std::int64_t rows, const T* x, const T* y,
                                                const float* saved, const T* dy, T* dx, double* gradients,
                                                double* products) {
    const std::int64_t c = blockIdx.x;
    const float mean = saved[c], scale = saved[norm.x.channels + c];
    double gradient = 0, product = 0;
    Channel(norm.x, rows).each([&](std::int64_t i) {
        const float d = !norm.relu || read(y[i]) > 0 ? read(dy[i]) : 0.0f;
        write(dx[i], d);  // exact: it is a number of dy
        gradient += static_cast<double>(d);
        product += static_cast<double>(d * ((read(x[i]) - mean) * scale));
    });
    store_part(gradients, gradient);
    store_part(products, product);
}

// Of what that has left: sums [2, channels].
__global__ void add_gradient_parts_kernel(const double* gradients, const double* products,
                                          std::int64_t channels, int parts, double* sums, float* dw,
                                          float* db) {
    for (std::int64_t c = first_item(); c < channels; c += stride()) {
        const double gradient = sum_of_parts(gradients, c, parts), product = sum_of_parts(products, c, parts);
        sums[c] = gradient;
        sums[channels + c] = product;
        db[c] = static_cast<float>(gradient);
        dw[c] = static_cast<float>(product);
    }
}

template <typename T>
__global__ void batch_norm_backward_kernel(BatchNorm norm, std::int64_t rows, const T* x, const float* w,
                                           const float* saved, const double* sums, double count, T* dx) {
    const std::int64_t c = blockIdx.x, channels = norm.x.channels;
    const float mean = saved[c], scale = saved[channels + c];
    const auto mean_gradient = static_cast<float>(sums[c] / count),
               mean_product = static_cast<float>(sums[channels + c] / count);
    const float factor = w[c] * scale;
    Channel(norm.x, rows).each([&](std::int64_t i) {
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

// One block per part of each channel: as many parts as give every thread some numbers of each image. Depends
// only on the shape, so that sums are always the same.
dim3 blocks_of(ImageShape shape) {
    constexpr std::int64_t kPart = 4 * kThreads, kMostParts = 64;
    const std::int64_t parts = std::clamp<std::int64_t>(shape.height * shape.width / kPart, 1, kMostParts);
    return {static_cast<unsigned>(shape.channels), static_cast<unsigned>(parts)};
}

double numbers_of_channel(const BatchNorm& norm, std::int64_t rows) {
    return static_cast<double>(rows * norm.x.height * norm.x.width);
}

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::sum_channels(ImageShape shape, In dy, Out db) {
    constexpr const char* kWhat = "summing channels";
    const dim3 blocks = blocks_of(shape);
    auto* sums = workspace<double>(shape.channels * blocks.y);
    if (sums == nullptr) return;
    with_number(dy.type(), [&]<typename T>(T) {
        launch(kWhat, sum_channels_kernel<T>, blocks, kThreads, shape, dy.rows(), dy, sums);
    });
    launch(kWhat, add_channel_parts_kernel, blocks_for(shape.channels), kThreads, sums, shape.channels,
           static_cast<int>(blocks.y), db);
}

// Three kernels: the mean has to be known before the squares.
void CudaDevice::batch_norm_sums(const BatchNorm& norm, In x, Out sums) {
    constexpr const char* kWhat = "the sums of batch norm";
    const dim3 blocks = blocks_of(norm.x);
    const std::int64_t channels = norm.x.channels, parts = channels * blocks.y;
    auto* part_sums = workspace<double>(2 * parts);
    if (part_sums == nullptr) return;
    auto* part_squares = part_sums + parts;
    with_number(x.type(), [&]<typename T>(T) {
        launch(kWhat, sum_channels_kernel<T>, blocks, kThreads, norm.x, x.rows(), x, part_sums);
        launch(kWhat, channel_squares_kernel<T>, blocks, kThreads, norm.x, x.rows(), x, part_sums,
               part_squares);
    });
    launch(kWhat, add_moments_kernel, blocks_for(channels), kThreads, part_sums, part_squares, channels,
           static_cast<int>(blocks.y), numbers_of_channel(norm, x.rows()), sums);
}

void CudaDevice::batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b,
                            InOut running, Out saved, Out y) {
    with_number(x.type(), [&]<typename T>(T) {
        launch("batch norm", batch_norm_kernel<T>, blocks_of(norm.x), kThreads, norm, x.rows(), x, sums,
               numbers_of_channel(norm, rows), w, b, running, saved, y);
    });
}

void CudaDevice::batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y) {
    with_number(x.type(), [&]<typename T>(T) {
        launch("batch norm with running statistics", batch_norm_inference_kernel<T>, blocks_of(norm.x),
               kThreads, norm, x.rows(), x, w, b, running, y);
    });
}

void CudaDevice::batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx,
                                          Out sums, Out dw, Out db) {
    constexpr const char* kWhat = "the sums of batch norm's gradient";
    const dim3 blocks = blocks_of(norm.x);
    const std::int64_t channels = norm.x.channels, parts = channels * blocks.y;
    auto* gradients = workspace<double>(2 * parts);
    if (gradients == nullptr) return;
    auto* products = gradients + parts;
    with_number(dx.type(), [&]<typename T>(T) {
        launch(kWhat, batch_norm_backward_sums_kernel<T>, blocks, kThreads, norm, x.rows(), x, y, saved, dy,
               dx, gradients, products);
    });
    launch(kWhat, add_gradient_parts_kernel, blocks_for(channels), kThreads, gradients, products, channels,
           static_cast<int>(blocks.y), sums, dw, db);
}

void CudaDevice::batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows,
                                     InOut dx) {
    with_number(dx.type(), [&]<typename T>(T) {
        launch("the gradient of batch norm", batch_norm_backward_kernel<T>, blocks_of(norm.x), kThreads, norm,
               x.rows(), x, w, saved, sums, numbers_of_channel(norm, rows), dx);
    });
}

void CudaDevice::copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column,
                              std::int64_t columns, Write write) {
    const dim3 blocks(blocks_for(columns), static_cast<unsigned>(std::min(from.rows(), kMaxBlocksInY)));
    with_number(from.type(), [&]<typename T>(T) {
        launch("copying columns", copy_columns_kernel<T>, blocks, kThreads, from.data<T>() + from_column,
               from.columns(), to.data<T>() + to_column, to.columns(), from.rows(), columns,
               write == Write::add);
    });
}

}  // namespace dp::trainer
