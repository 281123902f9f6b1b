// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/convolution.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "trainer/devices/cuda/cudnn.hpp"

namespace dp::trainer {
namespace {

constexpr float kOne = 1, kZero = 0;
constexpr int kMostAlgorithms = 16;

int small(std::int64_t value) {
    return static_cast<int>(value);
}

// cuDNN's own order is by speed. False where none fits.
template <typename Performance, typename Ask>
bool choose(Performance& chosen, Ask ask) {
    std::array<Performance, kMostAlgorithms> found{};
    int count = 0;
    if (ask(kMostAlgorithms, &count, found.data()) != CUDNN_STATUS_SUCCESS) return false;
    const auto end = found.begin() + count;
    const auto fits = std::find_if(found.begin(), end, [](const Performance& one) {
        return one.status == CUDNN_STATUS_SUCCESS && one.determinism == CUDNN_DETERMINISTIC &&
               (one.mathType == CUDNN_FMA_MATH || one.mathType == CUDNN_DEFAULT_MATH);
    });
    if (fits == end) return false;
    chosen = *fits;
    return true;
}

}  // namespace

CudaConvolutions::CudaConvolutions(FirstFailure& failure, cudaStream_t stream)
    : failure_(failure), stream_(stream) {}

// Results are not looked at: the process is about to end, or the device has failed already.
CudaConvolutions::~CudaConvolutions() {
    if (handle_ == nullptr) return;
    for (auto& [key, plan] : plans_) {
        for (auto* tensor : {plan.x, plan.b, plan.y})
            if (tensor != nullptr) cudnn().cudnnDestroyTensorDescriptor(tensor);
        if (plan.w != nullptr) cudnn().cudnnDestroyFilterDescriptor(plan.w);
        if (plan.convolution != nullptr) cudnn().cudnnDestroyConvolutionDescriptor(plan.convolution);
    }
    if (workspace_ != nullptr) cudaFree(workspace_);
    cudnn().cudnnDestroy(handle_);
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
    auto tensor = [&](cudnnTensorDescriptor_t& out, std::int64_t n, ImageShape shape) {
        return ok(d.cudnnCreateTensorDescriptor(&out), kWhat) &&
               ok(d.cudnnSetTensor4dDescriptor(out, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, small(n),
                                               small(shape.channels), small(shape.height),
                                               small(shape.width)),
                  kWhat);
    };
    const int kernel = small(c.kernel), padding = small(c.padding), stride = small(c.stride);
    return tensor(plan.x, rows, c.x) && tensor(plan.y, rows, c.y()) && tensor(plan.b, 1, {c.outputs, 1, 1}) &&
           ok(d.cudnnCreateFilterDescriptor(&plan.w), kWhat) &&
           ok(d.cudnnSetFilter4dDescriptor(plan.w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, small(c.outputs),
                                           small(c.x.channels), kernel, kernel),
              kWhat) &&
           ok(d.cudnnCreateConvolutionDescriptor(&plan.convolution), kWhat) &&
           ok(d.cudnnSetConvolution2dDescriptor(plan.convolution, padding, padding, stride, stride, 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
              kWhat) &&
           ok(d.cudnnSetConvolutionMathType(plan.convolution, CUDNN_FMA_MATH), kWhat);
}

bool CudaConvolutions::choose_algorithms(Plan& p) {
    const Cudnn& d = cudnn();
    const bool found = choose(p.forward,
                              [&](int most, int* count, auto* all) {
                                  return d.cudnnGetConvolutionForwardAlgorithm_v7(
                                      handle_, p.x, p.w, p.convolution, p.y, most, count, all);
                              }) &&
                       choose(p.backward_input,
                              [&](int most, int* count, auto* all) {
                                  return d.cudnnGetConvolutionBackwardDataAlgorithm_v7(
                                      handle_, p.w, p.y, p.convolution, p.x, most, count, all);
                              }) &&
                       choose(p.backward_parameters, [&](int most, int* count, auto* all) {
                           return d.cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                               handle_, p.x, p.y, p.convolution, p.w, most, count, all);
                       });
    if (!found) failure_.keep("cuDNN has no deterministic fp32 algorithm for a convolution");
    return found;
}

bool CudaConvolutions::make_room(std::size_t bytes) {
    if (bytes <= workspace_bytes_) return true;
    // cudaFree waits for what uses it.
    if (workspace_ != nullptr) cudaFree(workspace_);
    workspace_ = nullptr;
    workspace_bytes_ = 0;
    if (!failure_.check(cudaMalloc(&workspace_, bytes), "memory for cuDNN's workspace")) return false;
    workspace_bytes_ = bytes;
    return true;
}

CudaConvolutions::Plan* CudaConvolutions::plan(const Convolution& c, std::int64_t rows) {
    if (failure_.failed() || !open()) return nullptr;
    const auto [place, is_new] = plans_.try_emplace({c, rows});
    Plan& plan = place->second;
    if (is_new && describe(c, rows, plan) && choose_algorithms(plan))
        make_room(
            std::max({plan.forward.memory, plan.backward_input.memory, plan.backward_parameters.memory}));
    return failure_.failed() ? nullptr : &plan;
}

void CudaConvolutions::forward(const Convolution& c, std::int64_t rows, const float* x, const float* w,
                               float* y) {
    const Plan* p = plan(c, rows);
    if (p == nullptr) return;
    ok(cudnn().cudnnConvolutionForward(handle_, &kOne, p->x, x, p->w, w, p->convolution, p->forward.algo,
                                       workspace_, workspace_bytes_, &kZero, p->y, y),
       "a convolution");
}

void CudaConvolutions::backward_input(const Convolution& c, std::int64_t rows, const float* dy,
                                      const float* w, float* dx) {
    const Plan* p = plan(c, rows);
    if (p == nullptr) return;
    ok(cudnn().cudnnConvolutionBackwardData(handle_, &kOne, p->w, w, p->y, dy, p->convolution,
                                            p->backward_input.algo, workspace_, workspace_bytes_, &kZero,
                                            p->x, dx),
       "the gradient of a convolution's input");
}

void CudaConvolutions::backward_parameters(const Convolution& c, std::int64_t rows, const float* dy,
                                           const float* x, float* dw, float* db) {
    const Plan* p = plan(c, rows);
    if (p == nullptr) return;
    ok(cudnn().cudnnConvolutionBackwardFilter(handle_, &kOne, p->x, x, p->y, dy, p->convolution,
                                              p->backward_parameters.algo, workspace_, workspace_bytes_,
                                              &kZero, p->w, dw),
       "the gradient of a convolution's weights") &&
        db != nullptr&& ok(cudnn().cudnnConvolutionBackwardBias(handle_, &kOne, p->y, dy, &kZero, p->b, db),
                           "the gradient of a convolution's bias");
}

}  // namespace dp::trainer
