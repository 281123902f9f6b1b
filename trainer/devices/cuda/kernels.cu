// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's operations that any model may need, with their kernels. All are bound by memory traffic. T is
// the type of the activations.
#include <numeric>
#include <type_traits>

#include "trainer/devices/cuda/elementwise.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/relu.cuh"
#include "trainer/devices/cuda/row_sums.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

// Reads and writes each element once; neighbours in a row are neighbours in memory. Amounts go through
// `affine`, ids stay as they are.
template <typename Stored, typename Result>
__global__ void gather_kernel(const Stored* in, const std::int32_t* indices, std::int64_t count,
                              std::int64_t columns, Affine affine, Result* out) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const std::int64_t row = i / columns, column = i % columns;
        const Stored value = in[indices[row] * columns + column];
        if constexpr (std::is_same_v<Result, std::int32_t>) {
            out[i] = value;
        } else {
            write(out[i], static_cast<float>(value) * affine.scale + affine.shift);
        }
    }
}

template <typename T>
__global__ void repeat_row_kernel(const T* row, std::int64_t count, std::int64_t columns, T* y,
                                  std::int64_t length) {
    for (std::int64_t i = first_item(); i < count; i += stride())
        y[i / columns * length + i % columns] = row[i % columns];
}

struct Relu {
    __device__ float operator()(float x) const { return relu_of(x); }
};
struct ReluBackward {
    __device__ float operator()(float y, float dy) const { return y > 0 ? dy : 0.0f; }
};
struct Same {
    __device__ float operator()(float x) const { return x; }
};
struct Sum {
    __device__ float operator()(float x, float y) const { return x + y; }
};

template <typename T>
__global__ void add_channel_bias_kernel(T* y, const T* bias, std::int64_t count, std::int64_t channels,
                                        std::int64_t plane, bool relu) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float sum = read(y[i]) + (bias == nullptr ? 0.0f : read(bias[i / plane % channels]));
        write(y[i], relu ? relu_of(sum) : sum);
    }
}

// The index of the first of the 2 x 2 inputs of output `to`.
__device__ std::int64_t window_of(std::int64_t to, ImageShape x) {
    const std::int64_t columns = x.width / 2, lines = x.height / 2;
    const std::int64_t column = to % columns, line = to / columns % lines, plane = to / columns / lines;
    return (plane * x.height + 2 * line) * x.width + 2 * column;
}

template <typename T>
__global__ void max_pool_kernel(ImageShape shape, const T* x, std::int64_t count, T* y,
                                std::uint8_t* picked) {
    for (std::int64_t to = first_item(); to < count; to += stride()) {
        const std::int64_t from = window_of(to, shape);
        float largest = read(x[from]);
        int best = 0;
        for (int i = 1; i < 4; ++i) {
            const float value = read(x[from + i % 2 + i / 2 * shape.width]);
            if (value > largest || value != value) {  // NaN stays
                largest = value;
                best = i;
            }
        }
        write(y[to], largest);
        picked[to] = static_cast<std::uint8_t>(best);
    }
}

// dx is zero where nothing is written.
template <typename T>
__global__ void max_pool_backward_kernel(ImageShape shape, const T* dy, const std::uint8_t* picked,
                                         std::int64_t count, T* dx) {
    for (std::int64_t to = first_item(); to < count; to += stride()) {
        const int best = picked[to];
        dx[window_of(to, shape) + best % 2 + best / 2 * shape.width] = dy[to];
    }
}

template <typename T>
__global__ void dropout_kernel(const T* x, std::int64_t count, std::int64_t columns, Dropout dropout,
                               float scale, T* y) {
    for (std::int64_t i = first_item(); i < count; i += stride())
        write(y[i], is_kept(dropout, columns, i) ? read(x[i]) * scale : 0.0f);
}

__global__ void scale_kernel(float* x, std::int64_t count, float factor) {
    for (std::int64_t i = first_item(); i < count; i += stride()) x[i] *= factor;
}

// Each block of a fixed number sums its part, and then a warp sums the parts: always in the same order.
__global__ void square_parts_kernel(const float* x, std::int64_t count, double* parts) {
    double sum = 0;
    for (std::int64_t i = first_item(); i < count; i += stride())
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void sum_parts_kernel(const double* parts, int count, double* sum) {
    double part = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) part += parts[i];
    part = warp_sum(part);
    if (threadIdx.x == 0) *sum = part;
}

__global__ void clip_kernel(const double* sums, std::int64_t rows, std::int64_t columns, double largest,
                            Clipping* clipping) {
    double squares = 0;
    for (std::int64_t row = 0; row < rows; ++row) squares += sums[row * columns];
    *clipping = clipping_of(squares, largest);
}

__device__ bool skips(const Clipping* clipping) {
    return clipping != nullptr && clipping->skips != 0;
}
__device__ float factor_of(const Clipping* clipping) {
    return clipping == nullptr ? 1.0f : clipping->factor;
}

// Reads 12 bytes and writes 8 per element.
__global__ void sgd_kernel(float* parameters, const float* gradients, float* velocity, std::int64_t count,
                           SgdStep step) {
    if (skips(step.clipping)) return;
    const float factor = factor_of(step.clipping);
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float u = step.momentum * velocity[i] + factor * gradients[i] + step.decay * parameters[i];
        velocity[i] = u;
        parameters[i] -= step.rate * u;
    }
}

struct AdamNumbers {
    float* parameters;
    const float* gradients;
    float *m, *v;
    Bf16* copy;  // or null

    bool operator==(const AdamNumbers&) const = default;
    template <int kWidth>
    __device__ void update(std::int64_t at, const AdamStep& step, float factor) const {
        auto values = read_pack<kWidth>(parameters + at), first = read_pack<kWidth>(m + at),
             second = read_pack<kWidth>(v + at);
        const auto gradients_there = read_pack<kWidth>(gradients + at);
        for (int i = 0; i < kWidth; ++i) {
            // fmaf() leaves the compiler no choice of what it fuses, so each width has the same bits: a rank may take its shard in packs,
            // and one with a copy of it number by number.
            const float gradient = factor * gradients_there.at[i];
            first.at[i] = fmaf(step.beta1, first.at[i], (1 - step.beta1) * gradient);
            second.at[i] = fmaf(step.beta2, second.at[i], (1 - step.beta2) * gradient * gradient);
            const float divisor = fmaf(sqrtf(second.at[i]), step.root_scale, step.epsilon);
            values.at[i] = fmaf(step.keep, values.at[i], -(step.rate * first.at[i] / divisor));
        }
        write_pack(m + at, first);
        write_pack(v + at, second);
        write_pack(parameters + at, values);
        if (copy != nullptr) write_pack(copy + at, values);
    }
};

// Reads 16 bytes and writes 12 per element, and 2 of the copy.
template <int kWidth>
__global__ void adam_kernel(AdamNumbers numbers, std::int64_t count, AdamStep step) {
    if (skips(step.clipping)) return;
    const float factor = factor_of(step.clipping);
    const std::int64_t packs = count / kWidth;
    for (std::int64_t i = first_item(); i < packs; i += stride())
        numbers.update<kWidth>(i * kWidth, step, factor);
    for (std::int64_t i = packs * kWidth + first_item(); i < count; i += stride())
        numbers.update<1>(i, step, factor);
}

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::gather(In data, In indices, Affine affine, Out out) {
    const std::int64_t count = out.rows() * data.columns();
    const auto queue = [&]<typename Stored, typename Result>(Stored, Result) {
        launch("gathering a batch", gather_kernel<Stored, Result>, blocks_for(count), kThreads, data, indices,
               count, data.columns(), affine, out);
    };
    if (data.type() == Type::i32) return queue(std::int32_t{}, std::int32_t{});
    if (data.type() == Type::u16) return queue(std::uint16_t{}, std::int32_t{});
    with_number(out.type(), [&](auto number) {
        if (data.type() == Type::u8) return queue(std::uint8_t{}, number);
        queue(float{}, number);
    });
}

void CudaDevice::repeat_row(In row, Out y) {
    const std::int64_t columns = row.elements(), count = y.rows() * columns;
    with_number(y.type(), [&]<typename T>(T) {
        launch("repeating a bias", repeat_row_kernel<T>, blocks_for(count), kThreads, row, count, columns, y,
               y.columns());
    });
}

void CudaDevice::relu(InOut y) {
    map(*this, "ReLU", Relu{}, y, y);
}

void CudaDevice::sum_rows(In in, Write write, InOut sum) {
    constexpr const char* kWhat = "summing the gradient of a bias";
    constexpr std::int64_t kRowsAPart = 64, kMostParts = 128;
    const std::int64_t rows = in.rows(), length = in.columns(), columns = sum.elements();
    const RowParts split = row_parts(rows, kRowsAPart, kMostParts);
    auto* parts = workspace<float>(split.count * columns);
    with_width(in.type(), std::gcd(length, columns), {in.data<void>()}, [&]<typename T>(T, auto width) {
        launch(kWhat, sum_parts_of_rows_kernel<width, T>,
               dim3(blocks_of_lanes(columns / width), static_cast<unsigned>(split.count)),
               dim3(kSumLanes, kSumWarps), in, length, rows, columns / width, split.rows, parts);
    });
    add_parts_of_rows(*this, kWhat, parts, split.count, columns, write, sum.data<float>());
}

void CudaDevice::relu_backward(In y, In dy, Out dx) {
    map(*this, "the gradient of ReLU", ReluBackward{}, dx, y, dy);
}

void CudaDevice::add_channel_bias(ImageShape shape, In bias, Activation activation, InOut y) {
    with_number(y.type(), [&]<typename T>(T) {
        launch("adding to channels", add_channel_bias_kernel<T>, blocks_for(y.elements()), kThreads, y, bias,
               y.elements(), shape.channels, shape.height * shape.width, activation == Activation::relu);
    });
}

void CudaDevice::max_pool(ImageShape x_shape, In x, Out y, Out picked) {
    with_number(x.type(), [&]<typename T>(T) {
        launch("pooling", max_pool_kernel<T>, blocks_for(y.elements()), kThreads, x_shape, x, y.elements(), y,
               picked);
    });
}

void CudaDevice::max_pool_backward(ImageShape x_shape, In dy, In picked, Out dx) {
    zero(dx);
    with_number(dy.type(), [&]<typename T>(T) {
        launch("the gradient of pooling", max_pool_backward_kernel<T>, blocks_for(dy.elements()), kThreads,
               x_shape, dy, picked, dy.elements(), dx);
    });
}

void CudaDevice::dropout(In x, Dropout dropout, Out y) {
    with_number(x.type(), [&]<typename T>(T) {
        launch("dropout", dropout_kernel<T>, blocks_for(x.elements()), kThreads, x, x.elements(), x.columns(),
               dropout, 1 / (1 - dropout.rate), y);
    });
}

void CudaDevice::convert(In from, Out to) {
    convert_numbers(from.data<void>(), from.type(), to.data<void>(), to.type(), from.elements());
}

void CudaDevice::convert_numbers(const void* from, Type from_type, void* to, Type to_type,
                                 std::int64_t count) {
    with_number(from_type, [&]<typename Source>(Source) {
        with_number(to_type, [&]<typename Result>(Result) {
            map(*this, "converting numbers", Same{}, count, static_cast<Result*>(to),
                static_cast<const Source*>(from));
        });
    });
}

void CudaDevice::add(In x, InOut y) {
    map(*this, "adding gradients", Sum{}, y, y, x);
}

void CudaDevice::scale(InOut x, float factor) {
    launch("scaling gradients", scale_kernel, blocks_for(x.elements()), kThreads, x, x.elements(), factor);
}

void CudaDevice::square_sum(In x, Out sums) {
    constexpr const char* kWhat = "the norm of the gradients";
    constexpr int kParts = static_cast<int>(kSquareSums) - 1;
    auto* parts = sums.data<double>() + 1;
    launch(kWhat, square_parts_kernel, kParts, kThreads, x, x.elements(), parts);
    launch(kWhat, sum_parts_kernel, 1, 32, parts, kParts, sums);
}

void CudaDevice::clip(In sums, double largest, Out clipping) {
    launch("the norm of the gradients", clip_kernel, 1, 1, sums, sums.rows(), sums.columns(), largest,
           clipping);
}

void CudaDevice::sgd(InOut parameters, In gradients, InOut velocity, SgdStep step) {
    const std::int64_t count = parameters.elements();
    launch("a step of SGD", sgd_kernel, blocks_for(count), kThreads, parameters, gradients, velocity, count,
           step);
}

void CudaDevice::adam(InOut parameters, In gradients, InOut m, InOut v, AdamStep step, Out copy) {
    constexpr const char* kWhat = "a step of Adam";
    constexpr int kWidth = kPacked<Bf16>;
    const std::int64_t count = parameters.elements();
    const AdamNumbers numbers{parameters.data<float>(), gradients.data<float>(), m.data<float>(),
                              v.data<float>(), copy.data<Bf16>()};
    if (in_packs({numbers.parameters, numbers.gradients, numbers.m, numbers.v, numbers.copy})) {
        launch(kWhat, adam_kernel<kWidth>, blocks_for(count / kWidth + 1), kThreads, numbers, count, step);
    } else {
        launch(kWhat, adam_kernel<1>, blocks_for(count), kThreads, numbers, count, step);
    }
}

}  // namespace dp::trainer
