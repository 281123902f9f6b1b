// SPDX-License-Identifier: Apache-2.0
//
// cuDNN of the emulated GPU: what the trainer's convolution.cpp calls of it. With
// DP_CUDA_EMULATOR_NO_BF16_CONVOLUTIONS in the environment it has no algorithm for bf16, as cuDNN does not
// have one for every shape. DP_CUDA_EMULATOR_CONVOLUTIONS=bad: those that it says are fastest need more memory than there is, give
// other bits each time, or round more. =large: it has none but those that need more memory than there is.
#include <cuda_bf16.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "queues.hpp"

namespace {

constexpr std::size_t kWorkspace = 100;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "emulated cuDNN: %s\n", what);
    std::abort();
}

// [images, channels, height, width], or the filters of a convolution.
struct Tensor {
    cudnnDataType_t type;
    std::int64_t images, channels, height, width;
    std::size_t size() const { return static_cast<std::size_t>(images * channels * height * width); }
};
struct Convolution {
    int padding, stride;
    cudnnMathType_t unit;
};

template <typename T>
T& at(const void* handle) {
    return *static_cast<T*>(const_cast<void*>(handle));
}
template <typename T, typename Handle>
cudnnStatus_t make(Handle* handle) {
    *handle = reinterpret_cast<Handle>(new T{});
    return CUDNN_STATUS_SUCCESS;
}
template <typename T>
cudnnStatus_t end(void* handle) {
    delete static_cast<T*>(handle);
    return CUDNN_STATUS_SUCCESS;
}

std::vector<double> numbers(const void* from, const Tensor& tensor) {
    std::vector<double> all(tensor.size());
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = tensor.type == CUDNN_DATA_FLOAT
                     ? static_cast<double>(static_cast<const float*>(from)[i])
                     : static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]));
    return all;
}
void store(const std::vector<double>& all, const Tensor& tensor, void* to) {
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto value = static_cast<float>(all[i]);
        if (tensor.type == CUDNN_DATA_FLOAT) {
            static_cast<float*>(to)[i] = value;
        } else {
            static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(value);
        }
    }
}

// Calls work(x, w, y) with the places of each product of a convolution: y is the sum of x w.
template <typename Work>
void for_each_product(const Tensor& x, const Tensor& w, const Tensor& y, const Convolution& c, Work work) {
    require(x.type == w.type && w.type == y.type, "types that differ");
    require(x.images == y.images && w.channels == x.channels && w.images == y.channels,
            "shapes that do not fit");
    require((x.type == CUDNN_DATA_BFLOAT16) == (c.unit == CUDNN_TENSOR_OP_MATH),
            "not the unit of the algorithm");
    for (std::int64_t image = 0; image < y.images; ++image)
        for (std::int64_t out = 0; out < y.channels; ++out)
            for (std::int64_t line = 0; line < y.height; ++line)
                for (std::int64_t column = 0; column < y.width; ++column)
                    for (std::int64_t in = 0; in < x.channels; ++in)
                        for (std::int64_t k = 0; k < w.height; ++k)
                            for (std::int64_t l = 0; l < w.width; ++l) {
                                const std::int64_t r = line * c.stride + k - c.padding,
                                                   s = column * c.stride + l - c.padding;
                                if (r < 0 || r >= x.height || s < 0 || s >= x.width) continue;
                                work(static_cast<std::size_t>(
                                         ((image * x.channels + in) * x.height + r) * x.width + s),
                                     static_cast<std::size_t>(
                                         ((out * x.channels + in) * w.height + k) * w.width + l),
                                     static_cast<std::size_t>(
                                         ((image * y.channels + out) * y.height + line) * y.width + column));
                            }
}

constexpr std::size_t kTooMuch = std::size_t{8} << 30;

template <typename Algorithm>
constexpr Algorithm kFft = CUDNN_CONVOLUTION_FWD_ALGO_FFT;
template <>
constexpr cudnnConvolutionBwdDataAlgo_t kFft<cudnnConvolutionBwdDataAlgo_t> =
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT;
template <>
constexpr cudnnConvolutionBwdFilterAlgo_t kFft<cudnnConvolutionBwdFilterAlgo_t> =
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT;

template <typename Algorithm>
constexpr auto kChanging = static_cast<Algorithm>(1);

// One that cannot be had, bad ones, and a good one.
template <typename Performance>
cudnnStatus_t algorithms(const Tensor& x, int most, int* count, Performance* found) {
    const bool is_bf16 = x.type == CUDNN_DATA_BFLOAT16;
    *count = 0;
    if (is_bf16 && std::getenv("DP_CUDA_EMULATOR_NO_BF16_CONVOLUTIONS") != nullptr)
        return CUDNN_STATUS_SUCCESS;
    const char* said = std::getenv("DP_CUDA_EMULATOR_CONVOLUTIONS");
    const std::string kind = said == nullptr ? "" : said;
    Performance good{};
    good.status = CUDNN_STATUS_SUCCESS;
    good.determinism = CUDNN_DETERMINISTIC;
    good.memory = kWorkspace;
    good.mathType = is_bf16 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
    Performance missing = good, large = good, changing = good, transforming = good;
    missing.status = CUDNN_STATUS_NOT_SUPPORTED;
    large.memory = kTooMuch;
    changing.determinism = CUDNN_NON_DETERMINISTIC;
    changing.algo = kChanging<decltype(good.algo)>;
    transforming.algo = kFft<decltype(good.algo)>;
    std::vector<Performance> offered{missing};
    if (kind == "bad") offered.insert(offered.end(), {large, changing});
    if (kind == "bad" && !is_bf16) offered.push_back(transforming);
    offered.push_back(kind == "large" ? large : good);
    require(std::cmp_less_equal(offered.size(), most), "room for too few algorithms");
    std::copy(offered.begin(), offered.end(), found);
    *count = static_cast<int>(offered.size());
    return CUDNN_STATUS_SUCCESS;
}

template <typename Algorithm>
void require_use(Algorithm algorithm, std::size_t bytes, const void* alpha, const void* beta) {
    require(algorithm != kChanging<Algorithm>, "an algorithm that does not give the same bits each time");
    require(algorithm != kFft<Algorithm>, "an algorithm that rounds more than fp32 does");
    require(bytes == kWorkspace, "not the workspace that was asked for");
    require(*static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0,
            "factors that are not emulated");
}

// Queues what reads two tensors and writes the third.
template <typename Work>
void queue(cudnnHandle_t handle, const void* one, const Tensor& first, const void* other,
           const Tensor& second, void* to, const Tensor& third, void* workspace, std::size_t bytes,
           Work work) {
    const auto size = [](const Tensor& tensor) {
        return tensor.size() * (tensor.type == CUDNN_DATA_FLOAT ? 4 : 2);
    };
    const auto all = [=] {
        work();
        std::memset(workspace, 1, bytes);
    };
    dp::cuda_emulator::queue(dp::cuda_emulator::Did::kernel, at<cudaStream_t>(handle), {"a convolution"},
                             {{one, size(first), false},
                              {other, size(second), false},
                              {to, size(third), true},
                              {workspace, bytes, true}},
                             all);
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    return make<cudaStream_t>(handle);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    return end<cudaStream_t>(handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    at<cudaStream_t>(handle) = stream;
    return CUDNN_STATUS_SUCCESS;
}
const char* cudnnGetErrorString(cudnnStatus_t) {
    return "an error";
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* handle) {
    return make<Tensor>(handle);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t handle) {
    return end<Tensor>(handle);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t handle, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int images, int channels, int height,
                                         int width) {
    require(format == CUDNN_TENSOR_NCHW, "a layout that is not emulated");
    at<Tensor>(handle) = {type, images, channels, height, width};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* handle) {
    return make<Tensor>(handle);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t handle) {
    return end<Tensor>(handle);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t handle, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int outputs, int inputs, int height,
                                         int width) {
    require(format == CUDNN_TENSOR_NCHW, "a layout that is not emulated");
    at<Tensor>(handle) = {type, outputs, inputs, height, width};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* handle) {
    return make<Convolution>(handle);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t handle) {
    return end<Convolution>(handle);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t handle, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
    require(pad_h == pad_w && stride_h == stride_w && dilation_h == 1 && dilation_w == 1 &&
                mode == CUDNN_CROSS_CORRELATION && compute == CUDNN_DATA_FLOAT,
            "a convolution that is not emulated");
    at<Convolution>(handle) = {pad_h, stride_h, CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t handle, cudnnMathType_t unit) {
    at<Convolution>(handle).unit = unit;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t,
                                                     const cudnnConvolutionDescriptor_t,
                                                     const cudnnTensorDescriptor_t, const int most,
                                                     int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
    return algorithms(at<Tensor>(x), most, count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t,
                                                          const cudnnConvolutionDescriptor_t,
                                                          const cudnnTensorDescriptor_t, const int most,
                                                          int* count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* found) {
    return algorithms(at<Tensor>(w), most, count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t,
                                                            const cudnnConvolutionDescriptor_t,
                                                            const cudnnFilterDescriptor_t, const int most,
                                                            int* count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* found) {
    return algorithms(at<Tensor>(x), most, count, found);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_handle, const void* x,
                                      const cudnnFilterDescriptor_t w_handle, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t bytes,
                                      const void* beta, const cudnnTensorDescriptor_t y_handle, void* y) {
    require_use(algorithm, bytes, alpha, beta);
    const auto x_shape = at<Tensor>(x_handle), w_shape = at<Tensor>(w_handle), y_shape = at<Tensor>(y_handle);
    queue(handle, x, x_shape, w, w_shape, y, y_shape, workspace, bytes,
          [=, how = at<Convolution>(convolution)] {
              const auto in = numbers(x, x_shape), weights = numbers(w, w_shape);
              std::vector<double> sums(y_shape.size());
              for_each_product(x_shape, w_shape, y_shape, how,
                               [&](auto i, auto j, auto k) { sums[k] += in[i] * weights[j]; });
              store(sums, y_shape, y);
          });
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_handle, const void* w,
                                           const cudnnTensorDescriptor_t y_handle, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t x_handle, void* dx) {
    require_use(algorithm, bytes, alpha, beta);
    const auto x_shape = at<Tensor>(x_handle), w_shape = at<Tensor>(w_handle), y_shape = at<Tensor>(y_handle);
    queue(handle, dy, y_shape, w, w_shape, dx, x_shape, workspace, bytes,
          [=, how = at<Convolution>(convolution)] {
              const auto slopes = numbers(dy, y_shape), weights = numbers(w, w_shape);
              std::vector<double> sums(x_shape.size());
              for_each_product(x_shape, w_shape, y_shape, how,
                               [&](auto i, auto j, auto k) { sums[i] += slopes[k] * weights[j]; });
              store(sums, x_shape, dx);
          });
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_handle, const void* x,
                                             const cudnnTensorDescriptor_t y_handle, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t w_handle, void* dw) {
    require_use(algorithm, bytes, alpha, beta);
    const auto x_shape = at<Tensor>(x_handle), w_shape = at<Tensor>(w_handle), y_shape = at<Tensor>(y_handle);
    queue(handle, x, x_shape, dy, y_shape, dw, w_shape, workspace, bytes,
          [=, how = at<Convolution>(convolution)] {
              const auto in = numbers(x, x_shape), slopes = numbers(dy, y_shape);
              std::vector<double> sums(w_shape.size());
              for_each_product(x_shape, w_shape, y_shape, how,
                               [&](auto i, auto j, auto k) { sums[j] += in[i] * slopes[k]; });
              store(sums, w_shape, dw);
          });
    return CUDNN_STATUS_SUCCESS;
}
}
