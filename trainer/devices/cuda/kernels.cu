// SPDX-License-Identifier: Apache-2.0
//
// The trainer's own CUDA kernels: see kernels.hpp. All are bound by memory traffic. T is the type
// of the activations.
#include "trainer/devices/cuda/kernels.hpp"

#include <numeric>

#include "trainer/devices/cuda/elementwise.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/row_sums.cuh"

namespace dp::trainer::kernels {
namespace {

// Converts a stored number: amounts go through `affine`, ids stay as they are.
template <typename T>
__device__ void gathered(float value, Affine affine, T& out) {
    write(out, value * affine.scale + affine.shift);
}
template <typename T>
__device__ void gathered(std::uint8_t value, Affine affine, T& out) {
    write(out, static_cast<float>(value) * affine.scale + affine.shift);
}
__device__ void gathered(std::int32_t value, Affine, std::int32_t& out) {
    out = value;
}
__device__ void gathered(std::uint16_t value, Affine, std::int32_t& out) {
    out = value;
}

// Reads and writes each element once; neighbours in a row are neighbours in memory.
template <typename In, typename Out>
__global__ void gather_kernel(const In* in, const std::int32_t* indices, std::int64_t count,
                              std::int64_t columns, Affine affine, Out* out) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const std::int64_t row = i / columns, column = i % columns;
        gathered(in[indices[row] * columns + column], affine, out[i]);
    }
}

template <typename T>
__global__ void repeat_row_kernel(const T* row, std::int64_t count, std::int64_t columns, T* y,
                                  std::int64_t length) {
    for (std::int64_t i = first_item(); i < count; i += stride())
        y[i / columns * length + i % columns] = row[i % columns];
}

template <typename T>
struct OwnNumber {
    static constexpr int kSums = 1;
    const T* in;
    std::int64_t length;  // of a row, in memory
    template <int kWidth>
    __device__ void add(std::int64_t row, std::int64_t column, Numbers<kWidth> (&sums)[kSums]) const {
        const auto numbers = read_pack<kWidth>(in + row * length + column);
        for (int i = 0; i < kWidth; ++i) sums[0].at[i] += numbers.at[i];
    }
};

struct Relu {
    __device__ float operator()(float x) const { return fmaxf(x, 0.0f); }
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
        write(y[i], relu ? fmaxf(sum, 0.0f) : sum);
    }
}

// The index of the first of the 2 x 2 inputs of output `to`.
__device__ std::int64_t window_of(std::int64_t to, std::int64_t height, std::int64_t width) {
    const std::int64_t columns = width / 2, lines = height / 2;
    const std::int64_t column = to % columns, line = to / columns % lines, plane = to / columns / lines;
    return (plane * height + 2 * line) * width + 2 * column;
}

template <typename T>
__global__ void max_pool_kernel(const T* x, std::int64_t count, std::int64_t height, std::int64_t width, T* y,
                                std::uint8_t* picked) {
    for (std::int64_t to = first_item(); to < count; to += stride()) {
        const std::int64_t from = window_of(to, height, width);
        float largest = read(x[from]);
        int best = 0;
        for (int i = 1; i < 4; ++i) {
            const float value = read(x[from + i % 2 + i / 2 * width]);
            if (value > largest) {
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
__global__ void max_pool_backward_kernel(const T* dy, const std::uint8_t* picked, std::int64_t count,
                                         std::int64_t height, std::int64_t width, T* dx) {
    for (std::int64_t to = first_item(); to < count; to += stride()) {
        const int best = picked[to];
        dx[window_of(to, height, width) + best % 2 + best / 2 * width] = dy[to];
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

// Each block sums its part, with a grid of fixed size, and then a warp sums the parts: always in
// the same order.
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

// Reads 12 bytes and writes 8 per element.
__global__ void sgd_kernel(float* parameters, const float* gradients, float* velocity, std::int64_t count,
                           SgdStep step) {
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float u = step.momentum * velocity[i] + gradients[i] + step.decay * parameters[i];
        velocity[i] = u;
        parameters[i] -= step.rate * u;
    }
}

// Reads 16 bytes and writes 12 per element.
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

void gather(const Tensor& data, const Tensor& indices, Affine affine, const Tensor& out,
            cudaStream_t stream) {
    const std::int64_t count = out.rows() * data.columns();
    const auto queue = [&]<typename In, typename Out>(const In* in, Out* to) {
        launch(gather_kernel<In, Out>, blocks_for(count), kThreads, stream, in, indices.data<std::int32_t>(),
               count, data.columns(), affine, to);
    };
    if (data.type() == Type::i32) return queue(data.data<std::int32_t>(), out.data<std::int32_t>());
    if (data.type() == Type::u16) return queue(data.data<std::uint16_t>(), out.data<std::int32_t>());
    with_number(out.type(), [&](auto number) {
        auto* to = out.data<decltype(number)>();
        if (data.type() == Type::u8) return queue(data.data<std::uint8_t>(), to);
        queue(data.data<float>(), to);
    });
}

void repeat_row(const Tensor& row, const Tensor& y, cudaStream_t stream) {
    with_number(y.type(), [&](auto number) {
        using T = decltype(number);
        const std::int64_t columns = row.elements(), count = y.rows() * columns;
        launch(repeat_row_kernel<T>, blocks_for(count), kThreads, stream, row.data<T>(), count, columns,
               y.data<T>(), y.columns());
    });
}

void relu(const Tensor& y, cudaStream_t stream) {
    with_number(y.type(), [&](auto number) {
        using T = decltype(number);
        map(Relu{}, y.elements(), stream, y.data<T>(), y.data<T>());
    });
}

void sum_rows(const Tensor& in, Write write, const Tensor& sum, Workspace& workspace, cudaStream_t stream) {
    with_number(in.type(), [&](auto number) {
        using T = decltype(number);
        const std::int64_t length = in.columns(), columns = sum.elements();
        with_width<T>(std::gcd(length, columns), {in.data<T>()}, [&](auto width) {
            sum_rows_of<width>(OwnNumber<T>{in.data<T>(), length}, in.rows(), columns, write,
                               {sum.data<float>()}, workspace, stream);
        });
    });
}

void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, cudaStream_t stream) {
    with_number(y.type(), [&](auto number) {
        using T = decltype(number);
        map(ReluBackward{}, y.elements(), stream, dx.data<T>(), y.data<T>(), dy.data<T>());
    });
}

void add_channel_bias(ImageShape shape, const Tensor& bias, Activation activation, const Tensor& y,
                      cudaStream_t stream) {
    with_number(y.type(), [&](auto number) {
        using T = decltype(number);
        launch(add_channel_bias_kernel<T>, blocks_for(y.elements()), kThreads, stream, y.data<T>(),
               bias ? bias.data<T>() : nullptr, y.elements(), shape.channels, shape.height * shape.width,
               activation == Activation::relu);
    });
}

void max_pool(ImageShape x_shape, const Tensor& x, const Tensor& y, const Tensor& picked,
              cudaStream_t stream) {
    with_number(x.type(), [&](auto number) {
        using T = decltype(number);
        launch(max_pool_kernel<T>, blocks_for(y.elements()), kThreads, stream, x.data<T>(), y.elements(),
               x_shape.height, x_shape.width, y.data<T>(), picked.data<std::uint8_t>());
    });
}

void max_pool_backward(ImageShape x_shape, const Tensor& dy, const Tensor& picked, const Tensor& dx,
                       cudaStream_t stream) {
    with_number(dy.type(), [&](auto number) {
        using T = decltype(number);
        launch(max_pool_backward_kernel<T>, blocks_for(dy.elements()), kThreads, stream, dy.data<T>(),
               picked.data<std::uint8_t>(), dy.elements(), x_shape.height, x_shape.width, dx.data<T>());
    });
}

void dropout(const Tensor& x, Dropout dropout, const Tensor& y, cudaStream_t stream) {
    with_number(x.type(), [&](auto number) {
        using T = decltype(number);
        launch(dropout_kernel<T>, blocks_for(x.elements()), kThreads, stream, x.data<T>(), x.elements(),
               x.columns(), dropout, 1 / (1 - dropout.rate), y.data<T>());
    });
}

void convert(const Tensor& from, const Tensor& to, cudaStream_t stream) {
    convert(from.data<void>(), from.type(), to.data<void>(), to.type(), from.elements(), stream);
}

void convert(const void* from, Type from_type, void* to, Type to_type, std::int64_t count,
             cudaStream_t stream) {
    with_number(from_type, [&](auto in) {
        with_number(to_type, [&](auto out) {
            map(Same{}, count, stream, static_cast<decltype(out)*>(to),
                static_cast<const decltype(in)*>(from));
        });
    });
}

void add(const Tensor& x, const Tensor& y, cudaStream_t stream) {
    with_number(x.type(), [&](auto number) {
        using T = decltype(number);
        map(Sum{}, x.elements(), stream, y.data<T>(), y.data<T>(), x.data<T>());
    });
}

void scale(float* x, std::int64_t count, float factor, cudaStream_t stream) {
    launch(scale_kernel, blocks_for(count), kThreads, stream, x, count, factor);
}

void square_sum(const float* x, std::int64_t count, double* sums, cudaStream_t stream) {
    constexpr int kParts = static_cast<int>(kSquareSums) - 1;
    launch(square_parts_kernel, kParts, kThreads, stream, x, count, sums + 1);
    launch(sum_parts_kernel, 1, 32, stream, sums + 1, kParts, sums);
}

void sgd(float* parameters, const float* gradients, float* velocity, std::int64_t count, SgdStep step,
         cudaStream_t stream) {
    launch(sgd_kernel, blocks_for(count), kThreads, stream, parameters, gradients, velocity, count, step);
}

void adam(float* parameters, const float* gradients, float* m, float* v, std::int64_t count, AdamStep step,
          cudaStream_t stream) {
    launch(adam_kernel, blocks_for(count), kThreads, stream, parameters, gradients, m, v, count, step);
}

}  // namespace dp::trainer::kernels
