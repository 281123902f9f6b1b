// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/convolution.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "trainer/devices/cuda_libraries.hpp"

namespace dp::trainer {
namespace {

constexpr const char* kLibrary = "libcudnn.so.9";

// cuDNN's functions, looked up at the first convolution: other models do not need cuDNN, and a machine may
// not have it.
struct Cudnn {
    const char* missing = nullptr;  // what is not there: the library or a function of it
    void* library = open_cuda_library(kLibrary);

#define DP_LOOK_UP(name) decltype(&::name) name = reinterpret_cast<decltype(&::name)>(look_up(#name));
    DP_LOOK_UP(cudnnCreate)
    DP_LOOK_UP(cudnnDestroy)
    DP_LOOK_UP(cudnnSetStream)
    DP_LOOK_UP(cudnnGetErrorString)
    DP_LOOK_UP(cudnnCreateTensorDescriptor)
    DP_LOOK_UP(cudnnSetTensor4dDescriptor)
    DP_LOOK_UP(cudnnDestroyTensorDescriptor)
    DP_LOOK_UP(cudnnCreateFilterDescriptor)
    DP_LOOK_UP(cudnnSetFilter4dDescriptor)
    DP_LOOK_UP(cudnnDestroyFilterDescriptor)
    DP_LOOK_UP(cudnnCreateConvolutionDescriptor)
    DP_LOOK_UP(cudnnSetConvolution2dDescriptor)
    DP_LOOK_UP(cudnnSetConvolutionMathType)
    DP_LOOK_UP(cudnnDestroyConvolutionDescriptor)
    DP_LOOK_UP(cudnnGetConvolutionForwardAlgorithm_v7)
    DP_LOOK_UP(cudnnConvolutionForward)
    DP_LOOK_UP(cudnnGetConvolutionBackwardDataAlgorithm_v7)
    DP_LOOK_UP(cudnnConvolutionBackwardData)
    DP_LOOK_UP(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
    DP_LOOK_UP(cudnnConvolutionBackwardFilter)
#undef DP_LOOK_UP

 private:
    void* look_up(const char* name) {
        void* found = library != nullptr ? dlsym(library, name) : nullptr;
        if (found == nullptr) missing = library != nullptr ? name : kLibrary;
        return found;
    }
};

// Loaded once and never unloaded.
const Cudnn& cudnn() {
    static const Cudnn loaded;
    return loaded;
}

constexpr float kOne = 1, kZero = 0;
constexpr int kMostAlgorithms = 16;
constexpr std::int64_t kAlignment = 256;  // of places in the workspace

int small(std::int64_t value) {
    return static_cast<int>(value);
}

std::int64_t bytes_of_copy(const Tensor& tensor, Type type) {
    const std::int64_t bytes = tensor.elements() * static_cast<std::int64_t>(size_of(type));
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Try<void> done(cudnnStatus_t result, const char* what) {
    if (result == CUDNN_STATUS_SUCCESS) return {};
    return dp::fail(std::string(what) + ": cuDNN says " + cudnn().cudnnGetErrorString(result));
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
    DP_TRY(done(cudnn().cudnnCreate(&handle_), "opening cuDNN"));
    return done(cudnn().cudnnSetStream(handle_, device_.stream()), "giving cuDNN the stream");
}

Try<void> CudaConvolutions::describe(const Convolution& c, std::int64_t rows, Plan& plan) {
    const auto ok = [](cudnnStatus_t result) { return done(result, "describing a convolution"); };
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

Try<CudaConvolutions::Plan*> CudaConvolutions::plan(const Convolution& c, std::int64_t rows, Type type) {
    DP_TRY(open());
    const auto found = plans_.find({c, rows, type});
    if (found != plans_.end()) return &found->second;
    Plan plan;
    for (const Type in : {type, Type::f32}) {
        plan.type = in;
        if (auto described = describe(c, rows, plan); !described) {
            forget(plan);
            return tl::unexpected(std::move(described).error());
        }
        if (choose_algorithms(plan)) return &plans_.emplace(std::tuple(c, rows, type), plan).first->second;
        forget(plan);
    }
    return dp::fail("cuDNN has no deterministic fp32 algorithm for a convolution");
}

template <typename Algorithm, typename Work>
void CudaConvolutions::run(const Convolution& c, std::int64_t rows, Algorithm Plan::*algorithm,
                           const char* what, Operand (&operands)[3], Work work) {
    if (device_.failed()) return;
    const auto found = plan(c, rows, operands[0].tensor.type());
    if (!found) return device_.keep_failure(found.error().message);
    const Plan& p = **found;
    const Algorithm& chosen = p.*algorithm;
    const auto is_copied = [&](const Operand& one) { return one.tensor.type() != p.type; };
    std::int64_t copies = 0;
    for (const Operand& one : operands)
        if (is_copied(one)) copies += bytes_of_copy(one.tensor, p.type);
    auto* room = device_.workspace<std::byte>(copies + static_cast<std::int64_t>(chosen.memory));
    if (room == nullptr) return;
    for (Operand& one : operands) {
        one.place = one.tensor.data<std::byte>();
        if (!is_copied(one)) continue;
        one.place = std::exchange(room, room + bytes_of_copy(one.tensor, p.type));
        if (!one.is_result)
            device_.convert_numbers(one.tensor.data<void>(), one.tensor.type(), one.place, p.type,
                                    one.tensor.elements());
    }
    // The math type is a property of the descriptor that all three directions share. fp32 keeps what
    // describe() set, because cuDNN's "default" would be TF32.
    auto result = CUDNN_STATUS_SUCCESS;
    if (p.type == Type::bf16) result = cudnn().cudnnSetConvolutionMathType(p.convolution, chosen.mathType);
    if (result == CUDNN_STATUS_SUCCESS) result = work(p, room);
    if (const auto ran = done(result, what); !ran) device_.keep_failure(ran.error().message);
    for (const Operand& one : operands)
        if (one.is_result && is_copied(one))
            device_.convert_numbers(one.place, p.type, one.tensor.data<void>(), one.tensor.type(),
                                    one.tensor.elements());
}

void CudaConvolutions::forward(const Convolution& c, In x, In w, Out y) {
    Operand all[] = {{x}, {w}, {y, true}};
    run(c, x.rows(), &Plan::forward, "a convolution", all, [&](const Plan& p, void* room) {
        return cudnn().cudnnConvolutionForward(handle_, &kOne, p.x, all[0].place, p.w, all[1].place,
                                               p.convolution, p.forward.algo, room, p.forward.memory, &kZero,
                                               p.y, all[2].place);
    });
}

void CudaConvolutions::backward_input(const Convolution& c, In dy, In w, Out dx) {
    Operand all[] = {{dy}, {w}, {dx, true}};
    run(c, dy.rows(), &Plan::backward_input, "the gradient of a convolution's input", all,
        [&](const Plan& p, void* room) {
            return cudnn().cudnnConvolutionBackwardData(handle_, &kOne, p.w, all[1].place, p.y, all[0].place,
                                                        p.convolution, p.backward_input.algo, room,
                                                        p.backward_input.memory, &kZero, p.x, all[2].place);
        });
}

void CudaConvolutions::backward_parameters(const Convolution& c, In dy, In x, Out dw) {
    Operand all[] = {{dy}, {x}, {dw, true}};
    run(c, dy.rows(), &Plan::backward_parameters, "the gradient of a convolution's weights", all,
        [&](const Plan& p, void* room) {
            return cudnn().cudnnConvolutionBackwardFilter(
                handle_, &kOne, p.x, all[1].place, p.y, all[0].place, p.convolution,
                p.backward_parameters.algo, room, p.backward_parameters.memory, &kZero, p.w, all[2].place);
        });
}

std::int64_t CudaConvolutions::scratch(const Convolution& c, std::int64_t rows, Type type) {
    const auto found = plan(c, rows, type);
    if (!found) return 0;
    const Plan& p = **found;
    const std::size_t memory =
        std::max({p.forward.memory, p.backward_input.memory, p.backward_parameters.memory});
    // The gradient of the weights is f32.
    std::int64_t copied = p.type == Type::f32 ? 0 : c.outputs * c.x.channels * c.kernel * c.kernel;
    if (p.type != type)
        copied = rows * (c.x.numbers() + c.y().numbers()) + c.outputs * c.x.channels * c.kernel * c.kernel;
    return static_cast<std::int64_t>(memory) + copied * static_cast<std::int64_t>(size_of(p.type)) +
           3 * kAlignment;
}

}  // namespace dp::trainer
