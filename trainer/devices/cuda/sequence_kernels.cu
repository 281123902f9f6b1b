// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's operations on token vectors, with their kernels. T is the type of the model's activations.
#include "trainer/devices/cuda/elementwise.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/row_sums.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

constexpr float kGeluRoot = 0.7978845608f, kGeluCube = 0.044715f;

struct Gelu {
    __device__ float operator()(float x) const {
        const float t = tanhf(kGeluRoot * (x + kGeluCube * x * x * x));
        return 0.5f * x * (1 + t);
    }
};
struct GeluBackward {
    __device__ float operator()(float x, float dy) const {
        const float t = tanhf(kGeluRoot * (x + kGeluCube * x * x * x));
        const float slope = kGeluRoot * (1 + 3 * kGeluCube * x * x);
        return dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope);
    }
};

// The number of blocks for one warp per row.
unsigned warps_for(std::int64_t rows) {
    return static_cast<unsigned>((rows * 32 + kThreads - 1) / kThreads);
}

// One warp per row, which it reads three times (twice from cache) and writes once. `packs`: of kWidth
// numbers, per row.
template <int kWidth, typename T>
__global__ void layer_norm_kernel(const T* x, std::int64_t rows, std::int64_t packs, const float* w,
                                  const float* b, T* y, float* saved) {
    const std::int64_t row = first_item() / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (row >= rows) return;  // the whole warp
    const T* in = x + row * packs * kWidth;
    const auto columns = static_cast<float>(packs * kWidth);
    float sum = 0;
    for (std::int64_t p = lane; p < packs; p += 32) {
        const auto numbers = read_pack<kWidth>(in + p * kWidth);
        for (float number : numbers.at) sum += number;
    }
    const float mean = warp_sum_all(sum) / columns;
    float squares = 0;
    for (std::int64_t p = lane; p < packs; p += 32) {
        const auto numbers = read_pack<kWidth>(in + p * kWidth);
        for (float number : numbers.at) squares += (number - mean) * (number - mean);
    }
    const float scale = rsqrtf(warp_sum_all(squares) / columns + kNormEpsilon);
    for (std::int64_t p = lane; p < packs; p += 32) {
        auto numbers = read_pack<kWidth>(in + p * kWidth);
        const auto weights = read_pack<kWidth>(w + p * kWidth), biases = read_pack<kWidth>(b + p * kWidth);
        for (int i = 0; i < kWidth; ++i)
            numbers.at[i] = (numbers.at[i] - mean) * scale * weights.at[i] + biases.at[i];
        write_pack(y + (row * packs + p) * kWidth, numbers);
    }
    if (lane == 0) {
        saved[2 * row] = mean;
        saved[2 * row + 1] = scale;
    }
}

template <int kWidth, typename T>
__global__ void layer_norm_backward_kernel(const T* x, std::int64_t rows, std::int64_t packs, const float* w,
                                           const float* saved, const T* dy, T* dx) {
    const std::int64_t row = first_item() / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (row >= rows) return;
    const std::int64_t first = row * packs * kWidth;
    const auto columns = static_cast<float>(packs * kWidth);
    const float mean = saved[2 * row], scale = saved[2 * row + 1];
    float gradient = 0, product = 0;
    for (std::int64_t p = lane; p < packs; p += 32) {
        const auto in = read_pack<kWidth>(x + first + p * kWidth),
                   d = read_pack<kWidth>(dy + first + p * kWidth),
                   weights = read_pack<kWidth>(w + p * kWidth);
        for (int i = 0; i < kWidth; ++i) {
            gradient += d.at[i] * weights.at[i];
            product += d.at[i] * weights.at[i] * ((in.at[i] - mean) * scale);
        }
    }
    gradient = warp_sum_all(gradient) / columns;
    product = warp_sum_all(product) / columns;
    for (std::int64_t p = lane; p < packs; p += 32) {
        const auto in = read_pack<kWidth>(x + first + p * kWidth),
                   d = read_pack<kWidth>(dy + first + p * kWidth),
                   weights = read_pack<kWidth>(w + p * kWidth);
        auto out = read_pack<kWidth>(dx + first + p * kWidth);
        for (int i = 0; i < kWidth; ++i)
            out.at[i] += scale * (d.at[i] * weights.at[i] - gradient - (in.at[i] - mean) * scale * product);
        write_pack(dx + first + p * kWidth, out);
    }
}

// For sum_rows_of(): the gradients of w and b.
template <typename T>
struct LayerNormParameters {
    static constexpr int kSums = 2;
    const T *x, *dy;
    const float* saved;
    std::int64_t columns;
    template <int kWidth>
    __device__ void add(std::int64_t row, std::int64_t column, Numbers<kWidth> (&sums)[kSums]) const {
        const auto in = read_pack<kWidth>(x + row * columns + column),
                   d = read_pack<kWidth>(dy + row * columns + column);
        const float mean = saved[2 * row], scale = saved[2 * row + 1];
        for (int i = 0; i < kWidth; ++i) {
            sums[0].at[i] += d.at[i] * ((in.at[i] - mean) * scale);
            sums[1].at[i] += d.at[i];
        }
    }
};

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::gelu(In x, Out y) {
    map(*this, "GELU", Gelu{}, y, x);
}

void CudaDevice::gelu_backward(In x, In dy, Out dx) {
    map(*this, "the gradient of GELU", GeluBackward{}, dx, x, dy);
}

void CudaDevice::layer_norm(In x, In w, In b, Out y, Out saved) {
    with_width(x.type(), x.columns(), {x.data<void>(), w.data<void>(), b.data<void>(), y.data<void>()},
               [&]<typename T>(T, auto width) {
                   launch("layer norm", layer_norm_kernel<width, T>, warps_for(x.rows()), kThreads, x,
                          x.rows(), x.columns() / width, w, b, y, saved);
               });
}

void CudaDevice::layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) {
    constexpr const char* kWhat = "the gradient of layer norm";
    with_width(x.type(), x.columns(), {x.data<void>(), w.data<void>(), dy.data<void>(), dx.data<void>()},
               [&]<typename T>(T, auto width) {
                   launch(kWhat, layer_norm_backward_kernel<width, T>, warps_for(x.rows()), kThreads, x,
                          x.rows(), x.columns() / width, w, saved, dy, dx);
               });
    with_width(x.type(), x.columns(), {x.data<void>(), dy.data<void>()}, [&]<typename T>(T, auto width) {
        const LayerNormParameters<T> term{x.data<T>(), dy.data<T>(), saved.data<float>(), x.columns()};
        sum_rows_of<width>(*this, kWhat, term, x.rows(), x.columns(), Write::set,
                           {dw.data<float>(), db.data<float>()});
    });
}

}  // namespace dp::trainer
