// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/convolution.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "trainer/devices/cuda/convolution_choice.hpp"
#include "trainer/devices/cuda/cudnn_library.hpp"

namespace dp::trainer {
namespace {

using Plan = CudaConvolutions::Plan;

constexpr float kOne = 1, kZero = 0;
constexpr std::int64_t kAlignment = 256;  // of places in the workspace

// A workspace of a larger part is taken only where there is no smaller one: tensors need the memory, too.
constexpr std::size_t kOfTheMemory = 16;

std::size_t workspace_of(const Plan& plan) {
    return std::max({plan.forward.memory, plan.backward_input.memory, plan.backward_parameters.memory});
}

int small(std::int64_t value) {
    return static_cast<int>(value);
}

bool transforms(cudnnConvolutionFwdAlgo_t algorithm) {
    return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT ||
           algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING ||
           algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD ||
           algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
}
bool transforms(cudnnConvolutionBwdDataAlgo_t algorithm) {
    return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT ||
           algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING ||
           algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD ||
           algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED;
}
bool transforms(cudnnConvolutionBwdFilterAlgo_t algorithm) {
    return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT ||
           algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING ||
           algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD ||
           algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
}

// Of what cuDNN offers, which it sorts by speed. Returns false if nothing can be taken.
template <typename Performance, typename Ask, typename... Operands>
bool choose(Type type, std::size_t most, Performance& chosen, Ask ask, Operands... operands) {
    std::array<Performance, 16> found{};
    int count = 0;
    if (ask(operands..., static_cast<int>(found.size()), &count, found.data()) != CUDNN_STATUS_SUCCESS)
        return false;
    std::array<OfferedAlgorithm, found.size()> offered{};
    for (std::size_t i = 0; i < found.size(); ++i) {
        const Performance& one = found[i];
        offered[i] = {std::cmp_less(i, count) && one.status == CUDNN_STATUS_SUCCESS,
                      one.determinism == CUDNN_DETERMINISTIC,
                      one.mathType == CUDNN_FMA_MATH || one.mathType == CUDNN_DEFAULT_MATH,
                      transforms(one.algo), one.memory};
    }
    const auto place = choose_convolution(offered, type == Type::bf16, most);
    if (place) chosen = found[*place];
    return place.has_value();
}

// As captured_step.hpp has it, of a plan, which stays as it is.
template <typename Function, typename Algorithm, typename One, typename Other, typename Result>
struct ConvolutionCall {
    cudnnHandle_t handle;
    Function function;
    bool is_bf16;
    cudnnConvolutionDescriptor_t convolution;
    const Algorithm* algorithm;
    One of_one;
    const void* one;
    Other of_other;
    const void* other;
    void* room;
    Result of_result;
    void* result;

    int queue() const {
        // The math type is a property of the descriptor that all three directions share. fp32 keeps what
        // describe() set, because cuDNN's "default" would be TF32.
        auto status = CUDNN_STATUS_SUCCESS;
        if (is_bf16) status = cudnn().cudnnSetConvolutionMathType(convolution, algorithm->mathType);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        return function(handle, &kOne, of_one, one, of_other, other, convolution, algorithm->algo, room,
                        algorithm->memory, &kZero, of_result, result);
    }
    bool is_like(const ConvolutionCall& other_call) const { return algorithm == other_call.algorithm; }
    bool operator==(const ConvolutionCall&) const = default;
};

}  // namespace

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

Try<void> CudaConvolutions::open() {
    if (handle_ != nullptr) return {};
    if (const char* missing = cudnn().missing)
        return dp::fail("convolutions need cuDNN 9, but " + std::string(missing) +
                        " is not found; add its folder to LD_LIBRARY_PATH, or give --device=cpu");
    DP_TRY(cudnn_done(cudnn().cudnnCreate(&handle_), "opening cuDNN"));
    return cudnn_done(cudnn().cudnnSetStream(handle_, device_.stream()), "giving cuDNN the stream");
}

Try<void> CudaConvolutions::describe(const Convolution& c, std::int64_t rows, Plan& plan) {
    const auto ok = [](cudnnStatus_t result) { return cudnn_done(result, "describing a convolution"); };
    const Cudnn& d = cudnn();
    const bool is_bf16 = plan.type == Type::bf16;
    const cudnnDataType_t type = is_bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int kernel = small(c.kernel), padding = small(c.padding), stride = small(c.stride);
    for (const auto& [tensor, shape] : {std::pair{&plan.x, c.x}, {&plan.y, c.y()}}) {
        DP_TRY(ok(d.cudnnCreateTensorDescriptor(tensor)));
        DP_TRY(
            ok(d.cudnnSetTensor4dDescriptor(*tensor, CUDNN_TENSOR_NCHW, type, small(rows),
                                            small(shape.channels), small(shape.height), small(shape.width))));
    }
    DP_TRY(ok(d.cudnnCreateFilterDescriptor(&plan.w)));
    DP_TRY(ok(d.cudnnSetFilter4dDescriptor(plan.w, type, CUDNN_TENSOR_NCHW, small(c.outputs),
                                           small(c.x.channels), kernel, kernel)));
    DP_TRY(ok(d.cudnnCreateConvolutionDescriptor(&plan.convolution)));
    DP_TRY(ok(d.cudnnSetConvolution2dDescriptor(plan.convolution, padding, padding, stride, stride, 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)));
    return ok(
        d.cudnnSetConvolutionMathType(plan.convolution, is_bf16 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
}

Try<std::size_t> CudaConvolutions::largest_workspace() const {
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess)
        return dp::fail("the GPU does not say how much memory it has");
    if (const auto limit = device_.memory().limit())
        total = std::min(total, static_cast<std::size_t>(*limit));
    return total / kOfTheMemory;
}

bool CudaConvolutions::choose_algorithms(std::size_t most, Plan& p) {
    const Cudnn& d = cudnn();
    return choose(p.type, most, p.forward, d.cudnnGetConvolutionForwardAlgorithm_v7, handle_, p.x, p.w,
                  p.convolution, p.y) &&
           choose(p.type, most, p.backward_input, d.cudnnGetConvolutionBackwardDataAlgorithm_v7, handle_, p.w,
                  p.y, p.convolution, p.x) &&
           choose(p.type, most, p.backward_parameters, d.cudnnGetConvolutionBackwardFilterAlgorithm_v7,
                  handle_, p.x, p.y, p.convolution, p.w);
}

Try<Plan*> CudaConvolutions::plan(const Convolution& c, std::int64_t rows, Type type) {
    DP_TRY(open());
    const auto found = plans_.find({c, rows, type});
    if (found != plans_.end()) return &found->second;
    const std::size_t most = DP_TRY(largest_workspace());
    Plan plan;
    for (const Type in : {type, Type::f32}) {
        plan.type = in;
        if (auto described = describe(c, rows, plan); !described) {
            forget(plan);
            return tl::unexpected(std::move(described).error());
        }
        if (choose_algorithms(most, plan))
            return &plans_.emplace(std::tuple(c, rows, type), plan).first->second;
        forget(plan);
    }
    return dp::fail("cuDNN has no deterministic fp32 algorithm for a convolution");
}

template <typename Algorithm, typename Function, typename One, typename Other, typename Result>
void CudaConvolutions::run(const Convolution& c, In batch, const char* what, Algorithm Plan::*algorithm,
                           Function function, In one, One Plan::*of_one, In other, Other Plan::*of_other,
                           Out result, Result Plan::*of_result) {
    if (device_.failed()) return;
    const auto found = plan(c, batch.rows(), batch.type());
    if (!found) return device_.keep_failure(found.error().message);
    const Plan& p = **found;
    const Algorithm& chosen = p.*algorithm;
    const auto bytes_of_copy = [&](const Tensor& tensor) -> std::int64_t {
        if (tensor.type() == p.type) return 0;
        const std::int64_t bytes = tensor.elements() * static_cast<std::int64_t>(size_of(p.type));
        return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };
    auto* room =
        device_.workspace<std::byte>(bytes_of_copy(one) + bytes_of_copy(other) + bytes_of_copy(result) +
                                     static_cast<std::int64_t>(chosen.memory));
    if (room == nullptr) return;
    const auto place_of = [&](const Tensor& tensor) {
        const std::int64_t copied = bytes_of_copy(tensor);
        return copied > 0 ? std::exchange(room, room + copied) : tensor.data<std::byte>();
    };
    const auto input = [&](const Tensor& tensor) {
        auto* place = place_of(tensor);
        if (tensor.type() != p.type)
            device_.convert_numbers(tensor.data<void>(), tensor.type(), place, p.type, tensor.elements());
        return place;
    };
    const auto *from_one = input(one), *from_other = input(other);
    auto* to = place_of(result);
    const ConvolutionCall<Function, Algorithm, One, Other, Result> call{
        handle_,  function,    p.type == Type::bf16, p.convolution, &chosen,      p.*of_one,
        from_one, p.*of_other, from_other,           room,          p.*of_result, to};
    const auto status = static_cast<cudnnStatus_t>(device_.step().queue(call));
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) device_.memory().note_exhausted();
    if (const auto ran = cudnn_done(status, what); !ran) device_.keep_failure(ran.error().message);
    if (result.type() != p.type)
        device_.convert_numbers(to, p.type, result.data<void>(), result.type(), result.elements());
}

std::int64_t CudaConvolutions::scratch(const Convolution& c, std::int64_t rows, Type type) {
    const auto found = plan(c, rows, type);
    if (!found) return 0;
    const Plan& p = **found;
    const std::size_t memory = workspace_of(p);
    const std::int64_t weights = c.outputs * c.x.channels * c.kernel * c.kernel;
    std::int64_t copied = p.type == Type::f32 ? 0 : weights;  // whose gradient is f32
    if (p.type != type) copied = rows * (c.x.numbers() + c.y().numbers()) + weights;
    return static_cast<std::int64_t>(memory) + copied * static_cast<std::int64_t>(size_of(p.type)) +
           3 * kAlignment;
}

void CudaDevice::convolve(const Convolution& c, In x, In w, In b, Activation activation, Out y) {
    convolutions_->run(c, x, "a convolution", &Plan::forward, cudnn().cudnnConvolutionForward, x, &Plan::x, w,
                       &Plan::w, y, &Plan::y);
    if (b || activation != Activation::none) add_channel_bias(c.y(), b, activation, y);
}

void CudaDevice::convolve_backward_input(const Convolution& c, In dy, In w, Out dx) {
    convolutions_->run(c, dy, "the gradient of a convolution's input", &Plan::backward_input,
                       cudnn().cudnnConvolutionBackwardData, w, &Plan::w, dy, &Plan::y, dx, &Plan::x);
}

void CudaDevice::convolve_backward_parameters(const Convolution& c, In dy, In x, Out dw, Out db) {
    convolutions_->run(c, dy, "the gradient of a convolution's weights", &Plan::backward_parameters,
                       cudnn().cudnnConvolutionBackwardFilter, x, &Plan::x, dy, &Plan::y, dw, &Plan::w);
    if (db) sum_channels(c.y(), dy, db);
}

std::int64_t CudaDevice::convolution_scratch(const Convolution& c, std::int64_t rows, Type type) const {
    return convolutions_->scratch(c, rows, type);
}

}  // namespace dp::trainer
