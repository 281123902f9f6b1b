// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/convolution.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "trainer/devices/cuda/cudnn.hpp"
#include "trainer/devices/cuda/kernels.hpp"

namespace dp::trainer {
namespace {

constexpr float kOne = 1, kZero = 0;
constexpr int kMostAlgorithms = 16;

int small(std::int64_t value) {
    return static_cast<int>(value);
}

// cuDNN sorts by speed. Returns false if none fits. bf16 may use any unit, because all of them add
// up in fp32.
template <typename Performance, typename Ask>
bool choose(Type type, Performance& chosen, Ask ask) {
    std::array<Performance, kMostAlgorithms> found{};
    int count = 0;
    if (ask(kMostAlgorithms, &count, found.data()) != CUDNN_STATUS_SUCCESS) return false;
    const auto end = found.begin() + count;
    const auto fits = std::find_if(found.begin(), end, [&](const Performance& one) {
        return one.status == CUDNN_STATUS_SUCCESS && one.determinism == CUDNN_DETERMINISTIC &&
               (type == Type::bf16 || one.mathType == CUDNN_FMA_MATH || one.mathType == CUDNN_DEFAULT_MATH);
    });
    if (fits == end) return false;
    chosen = *fits;
    return true;
}

}  // namespace

CudaConvolutions::CudaConvolutions(FirstFailure& failure, cudaStream_t stream)
    : failure_(failure),
      stream_(stream),
      workspace_(failure),
      x_copy_(failure),
      w_copy_(failure),
      y_copy_(failure) {}

// Ignores results: the process is about to end, or the device has failed already.
CudaConvolutions::~CudaConvolutions() {
    if (handle_ == nullptr) return;
    for (auto& [key, plan] : plans_) forget(plan);
    cudnn().cudnnDestroy(handle_);
}

void CudaConvolutions::forget(Plan& plan) {
    for (auto* tensor : {plan.x, plan.y})
        if (tensor != nullptr) cudnn().cudnnDestroyTensorDescriptor(tensor);
    if (plan.w != nullptr) cudnn().cudnnDestroyFilterDescriptor(plan.w);
    if (plan.convolution != nullptr) cudnn().cudnnDestroyConvolutionDescriptor(plan.convolution);
    plan = {};
}

bool CudaConvolutions::ok(cudnnStatus_t result, const char* what) {
    if (result == CUDNN_STATUS_SUCCESS) return true;
    failure_.keep(std::string(what) + ": cuDNN says " + cudnn().cudnnGetErrorString(result));
    return false;
}

bool CudaConvolutions::open() {
    if (handle_ != nullptr) return true;
    if (const char* missing = cudnn().missing) {
        failure_.keep(std::string(missing) +
                      " is not found, and convolutions need cuDNN 9; put its folder into LD_LIBRARY_PATH, or "
                      "give --device=cpu");
        return false;
    }
    return ok(cudnn().cudnnCreate(&handle_), "opening cuDNN") &&
           ok(cudnn().cudnnSetStream(handle_, stream_), "giving cuDNN the stream");
}

bool CudaConvolutions::describe(const Convolution& c, std::int64_t rows, Plan& plan) {
    constexpr const char* kWhat = "describing a convolution";
    const Cudnn& d = cudnn();
    const bool is_bf16 = plan.type == Type::bf16;
    const cudnnDataType_t type = is_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    auto tensor = [&](cudnnTensorDescriptor_t& out, std::int64_t n, ImageShape shape) {
        return ok(d.cudnnCreateTensorDescriptor(&out), kWhat) &&
               ok(d.cudnnSetTensor4dDescriptor(out, CUDNN_TENSOR_NCHW, type, small(n), small(shape.channels),
                                               small(shape.height), small(shape.width)),
                  kWhat);
    };
    const int kernel = small(c.kernel), padding = small(c.padding), stride = small(c.stride);
    return tensor(plan.x, rows, c.x) && tensor(plan.y, rows, c.y()) &&
           ok(d.cudnnCreateFilterDescriptor(&plan.w), kWhat) &&
           ok(d.cudnnSetFilter4dDescriptor(plan.w, type, CUDNN_TENSOR_NCHW, small(c.outputs),
                                           small(c.x.channels), kernel, kernel),
              kWhat) &&
           ok(d.cudnnCreateConvolutionDescriptor(&plan.convolution), kWhat) &&
           ok(d.cudnnSetConvolution2dDescriptor(plan.convolution, padding, padding, stride, stride, 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              kWhat) &&
           ok(d.cudnnSetConvolutionMathType(plan.convolution,
                                            is_bf16 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH),
              kWhat);
}

bool CudaConvolutions::choose_algorithms(Plan& p) {
    const Cudnn& d = cudnn();
    return choose(p.type, p.forward,
                  [&](int most, int* count, auto* all) {
                      return d.cudnnGetConvolutionForwardAlgorithm_v7(handle_, p.x, p.w, p.convolution, p.y,
                                                                      most, count, all);
                  }) &&
           choose(p.type, p.backward_input,
                  [&](int most, int* count, auto* all) {
                      return d.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, p.w, p.y, p.convolution,
                                                                           p.x, most, count, all);
                  }) &&
           choose(p.type, p.backward_parameters, [&](int most, int* count, auto* all) {
               return d.cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle_, p.x, p.y, p.convolution, p.w,
                                                                      most, count, all);
           });
}

CudaConvolutions::Plan* CudaConvolutions::plan(const Convolution& c, std::int64_t rows, Type type) {
    if (failure_.failed() || !open()) return nullptr;
    const auto [place, is_new] = plans_.try_emplace({c, rows, type});
    Plan& plan = place->second;
    if (!is_new) return &plan;
    plan.type = type;
    if (describe(c, rows, plan) && choose_algorithms(plan)) return &plan;
    if (failure_.failed()) return nullptr;
    if (type == Type::bf16) {
        forget(plan);  // its type is f32 now
        if (describe(c, rows, plan) && choose_algorithms(plan)) return &plan;
    }
    failure_.keep("cuDNN has no deterministic fp32 algorithm for a convolution");
    return nullptr;
}

const void* CudaConvolutions::input(const Plan& plan, const Tensor& tensor, Workspace& copy) {
    void* place = output(plan, tensor, copy);
    if (place != nullptr && tensor.type() != plan.type)
        kernels::convert(tensor.data<void>(), tensor.type(), place, plan.type, tensor.elements(), stream_);
    return place;
}

void* CudaConvolutions::output(const Plan& plan, const Tensor& tensor, Workspace& copy) {
    if (tensor.type() == plan.type) return tensor.data<void>();
    return copy.take<std::byte>(tensor.elements() * static_cast<std::int64_t>(size_of(plan.type)));
}

void CudaConvolutions::finish(const Plan& plan, const void* place, const Tensor& tensor) {
    if (tensor.type() != plan.type && !failure_.failed())
        kernels::convert(place, plan.type, tensor.data<void>(), tensor.type(), tensor.elements(), stream_);
}

bool CudaConvolutions::prepare(const Plan& plan, cudnnMathType_t math) {
    if (failure_.failed()) return false;
    // fp32 keeps what describe() set, because cuDNN's "default" would be TF32.
    return plan.type != Type::bf16 || ok(cudnn().cudnnSetConvolutionMathType(plan.convolution, math),
                                         "choosing the unit for a convolution");
}

void CudaConvolutions::forward(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& y) {
    const Plan* p = plan(c, x.rows(), x.type());
    if (p == nullptr) return;
    const void *from = input(*p, x, x_copy_), *weights = input(*p, w, w_copy_);
    void* to = output(*p, y, y_copy_);
    auto* room = workspace_.take<std::byte>(static_cast<std::int64_t>(p->forward.memory));
    if (!prepare(*p, p->forward.mathType)) return;
    ok(cudnn().cudnnConvolutionForward(handle_, &kOne, p->x, from, p->w, weights, p->convolution,
                                       p->forward.algo, room, p->forward.memory, &kZero, p->y, to),
       "a convolution");
    finish(*p, to, y);
}

void CudaConvolutions::backward_input(const Convolution& c, const Tensor& dy, const Tensor& w,
                                      const Tensor& dx) {
    const Plan* p = plan(c, dy.rows(), dy.type());
    if (p == nullptr) return;
    const void *from = input(*p, dy, y_copy_), *weights = input(*p, w, w_copy_);
    void* to = output(*p, dx, x_copy_);
    auto* room = workspace_.take<std::byte>(static_cast<std::int64_t>(p->backward_input.memory));
    if (!prepare(*p, p->backward_input.mathType)) return;
    ok(cudnn().cudnnConvolutionBackwardData(handle_, &kOne, p->w, weights, p->y, from, p->convolution,
                                            p->backward_input.algo, room, p->backward_input.memory, &kZero,
                                            p->x, to),
       "the gradient of a convolution's input");
    finish(*p, to, dx);
}

void CudaConvolutions::backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x,
                                           const Tensor& dw) {
    const Plan* p = plan(c, dy.rows(), dy.type());
    if (p == nullptr) return;
    const void *from = input(*p, x, x_copy_), *slopes = input(*p, dy, y_copy_);
    void* to = output(*p, dw, w_copy_);
    auto* room = workspace_.take<std::byte>(static_cast<std::int64_t>(p->backward_parameters.memory));
    if (!prepare(*p, p->backward_parameters.mathType)) return;
    ok(cudnn().cudnnConvolutionBackwardFilter(handle_, &kOne, p->x, from, p->y, slopes, p->convolution,
                                              p->backward_parameters.algo, room,
                                              p->backward_parameters.memory, &kZero, p->w, to),
       "the gradient of a convolution's weights");
    finish(*p, to, dw);
}

}  // namespace dp::trainer
