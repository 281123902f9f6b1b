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

// The most threads of a block. A row of 4096 bf16 numbers is 512 packs of 16 bytes; with more the compiler would have to spill.
constexpr int kMostThreadsOfRow = 512;

// Block x takes the rows of its part one after the other and reads x, dy and dx once: a thread keeps its pack of kWidth numbers and
// what it adds to the gradients of w and b. So parts, [2, gridDim.x, columns], are the sums of each part's rows, in their order.
// In rows of more packs than a block has threads, block y writes its share of them and also reads the others.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kMostThreadsOfRow)
    layer_norm_backward_kernel(const T* x, std::int64_t rows, std::int64_t packs, const float* w,
                               const float* saved, const T* dy, T* dx, std::int64_t rows_a_part,
                               float* parts) {
    struct Sums {
        float gradient, product;
    };
    __shared__ Sums warps[2][kMostThreadsOfRow / 32];  // in turns, so that a row needs one barrier
    const std::int64_t own = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
    const std::int64_t all = static_cast<std::int64_t>(gridDim.y) * blockDim.x;
    const std::int64_t begin = blockIdx.x * rows_a_part, end = min(begin + rows_a_part, rows);
    const auto columns = static_cast<float>(packs * kWidth);
    Numbers<kWidth> dw = {}, db = {}, in = {}, d = {}, weights = {};
    for (std::int64_t row = begin; row < end; ++row) {
        const float mean = saved[2 * row], scale = saved[2 * row + 1];
        Sums sums = {};
        for (unsigned share = 1; share <= gridDim.y; ++share) {  // its own last, which it keeps
            const std::int64_t pack = own + static_cast<std::int64_t>(share) * blockDim.x -
                                      (blockIdx.y + share < gridDim.y ? 0 : all);
            if (pack >= packs) continue;
            in = read_pack<kWidth>(x + (row * packs + pack) * kWidth);
            d = read_pack<kWidth>(dy + (row * packs + pack) * kWidth);
            weights = read_pack<kWidth>(w + pack * kWidth);
            for (int i = 0; i < kWidth; ++i) {
                in.at[i] = (in.at[i] - mean) * scale;
                sums.gradient += d.at[i] * weights.at[i];
                sums.product += d.at[i] * weights.at[i] * in.at[i];
            }
        }
        T* const to = dx + (row * packs + own) * kWidth;
        Numbers<kWidth> out = {};
        if (own < packs) {
            out = read_pack<kWidth>(to);
            for (int i = 0; i < kWidth; ++i) {
                dw.at[i] += d.at[i] * in.at[i];
                db.at[i] += d.at[i];
                d.at[i] *= weights.at[i];
            }
        }
        sums = {warp_sum_all(sums.gradient), warp_sum_all(sums.product)};
        if (threadIdx.x % 32 == 0) warps[row % 2][threadIdx.x / 32] = sums;
        __syncthreads();
        if (own >= packs) continue;
        sums = {};
        for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
            sums.gradient += warps[row % 2][warp].gradient;
            sums.product += warps[row % 2][warp].product;
        }
        const float gradient = sums.gradient / columns, product = sums.product / columns;
        for (int i = 0; i < kWidth; ++i) out.at[i] += scale * (d.at[i] - gradient - in.at[i] * product);
        write_pack(to, out);
    }
    if (own >= packs) return;
    write_pack(parts + (blockIdx.x * packs + own) * kWidth, dw);
    write_pack(parts + ((gridDim.x + blockIdx.x) * packs + own) * kWidth, db);
}

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
    const std::int64_t rows = x.rows(), columns = x.columns();
    const RowParts split = layer_norm_parts(rows, columns);
    auto* parts = workspace<float>(2 * split.count * columns);
    with_width(x.type(), columns, {x.data<void>(), w.data<void>(), dy.data<void>(), dx.data<void>()},
               [&]<typename T>(T, auto width) {
                   const std::int64_t packs = columns / width, lanes = (packs + 31) / 32 * 32;
                   const std::int64_t threads = std::min<std::int64_t>(lanes, kMostThreadsOfRow);
                   launch(kWhat, layer_norm_backward_kernel<width, T>,
                          dim3(static_cast<unsigned>(split.count),
                               static_cast<unsigned>((packs + threads - 1) / threads)),
                          static_cast<unsigned>(threads), x, rows, packs, w, saved, dy, dx, split.rows,
                          parts);
               });
    add_parts_of_rows(*this, kWhat, parts, split.count, columns, Write::set, dw.data<float>(),
                      db.data<float>());
}

}  // namespace dp::trainer
