// SPDX-License-Identifier: Apache-2.0
//
// Row-major products with cuBLASLt: see gemm.hpp. cuBLASLt's matrices are column-major, and a row-major
// matrix read as column-major is its transpose. So this computes cᵀ = op(b)ᵀ op(a)ᵀ, with the operands
// exchanged. A bias along the columns of c is one along the rows of cᵀ, which cuBLASLt's epilogues can add.
#include "trainer/devices/cuda/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "trainer/devices/cuda/stream_timer.hpp"

namespace dp::trainer {
namespace {

constexpr const char* kDescribing = "describing a matrix product";

// The largest power of two, up to 256, that divides the address; 256 where there is no tensor.
std::uint32_t alignment_of(const Tensor& tensor) {
    constexpr std::uintptr_t kMost = 256;
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data<void>()) | kMost;
    return static_cast<std::uint32_t>(address & (~address + 1));
}

cudaDataType_t cuda_type(Type type) {
    return type == Type::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

Gemm::Gemm(CudaDevice& device) : device_(device) {
    if (ok(cublasLtCreate(&handle_), "opening cuBLASLt")) workspace_ = device_.make(Type::u8, {kWorkspace});
}

// Ignores results: the process is about to end, or the device has failed already.
Gemm::~Gemm() {
    for (auto& [key, plan] : plans_) {
        if (plan.a != nullptr) cublasLtMatrixLayoutDestroy(plan.a);
        if (plan.b != nullptr) cublasLtMatrixLayoutDestroy(plan.b);
        if (plan.c != nullptr) cublasLtMatrixLayoutDestroy(plan.c);
        if (plan.operation != nullptr) cublasLtMatmulDescDestroy(plan.operation);
    }
    if (handle_ != nullptr) cublasLtDestroy(handle_);
}

bool Gemm::ok(cublasStatus_t result, std::string_view what) {
    if (result == CUBLAS_STATUS_SUCCESS) return true;
    if (result == CUBLAS_STATUS_ALLOC_FAILED) device_.memory().note_exhausted();
    device_.keep_failure(std::string(what) + ": cuBLASLt says " + cublasLtGetStatusString(result));
    return false;
}

std::string Gemm::name_of(const Case& asked) {
    const Product& p = asked.product;
    std::string name = "product";
    for (const std::int64_t number :
         {p.rows, p.columns, p.inner, std::int64_t{p.transpose_a}, std::int64_t{p.transpose_b},
          static_cast<std::int64_t>(p.epilogue), asked.length_a, asked.length_b, asked.length_c,
          static_cast<std::int64_t>(asked.factors), static_cast<std::int64_t>(asked.result),
          std::int64_t{asked.alignment}})
        name += " " + std::to_string(number);
    return name;
}

bool Gemm::describe(const Case& asked, const Extras& extras, Plan& plan) {
    const Product& p = asked.product;
    const cudaDataType_t factors = cuda_type(asked.factors), result = cuda_type(asked.result);
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;  // of b, which comes first
    const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int sms = device_.sms();
    // Row-major [rows, columns] is column-major [columns, rows] with rows' length as leading dimension.
    auto layout = [&](cublasLtMatrixLayout_t& out, cudaDataType_t type, std::int64_t rows,
                      std::int64_t columns, std::int64_t length) {
        return ok(cublasLtMatrixLayoutCreate(&out, type, static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), length),
                  kDescribing);
    };
    return ok(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), kDescribing) &&
           set(plan, CUBLASLT_MATMUL_DESC_TRANSA, first) && set(plan, CUBLASLT_MATMUL_DESC_TRANSB, second) &&
           set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue) &&
           (sms == 0 || set(plan, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sms)) &&
           (!extras.bias || set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, result)) &&
           (!extras.before_gelu || set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, asked.length_c)) &&
           ok(point_to(extras.bias.data<void>(), extras.before_gelu.data<void>(), plan), kDescribing) &&
           layout(plan.a, factors, p.stored_rows_a(), p.stored_columns_a(), asked.length_a) &&
           layout(plan.b, factors, p.stored_rows_b(), p.stored_columns_b(), asked.length_b) &&
           layout(plan.c, result, p.rows, p.columns, asked.length_c);
}

template <typename Value>
bool Gemm::set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    return ok(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &value, sizeof value), kDescribing);
}

cublasStatus_t Gemm::point_to(const void* bias, const void* before_gelu, const Plan& plan) {
    const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const void* place) {
        return place == nullptr
                   ? CUBLAS_STATUS_SUCCESS
                   : cublasLtMatmulDescSetAttribute(plan.operation, attribute, &place, sizeof place);
    };
    const cublasStatus_t result = point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    return result != CUBLAS_STATUS_SUCCESS ? result
                                           : point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before_gelu);
}

int Gemm::Call::queue() const {
    if (const auto pointed = point_to(bias, before_gelu, *plan); pointed != CUBLAS_STATUS_SUCCESS)
        return pointed;
    const float one = 1;
    return cublasLtMatmul(handle, plan->operation, &one, b, plan->b, a, plan->a, &beta, before, plan->c, c,
                          plan->c, &plan->algorithm, workspace, kWorkspace, stream);
}

std::vector<cublasLtMatmulHeuristicResult_t> Gemm::guesses(std::uint32_t alignment, Plan& plan) {
    constexpr const char* kWhat = "choosing an algorithm for a matrix product";
    // If the sum is split, its parts are in the workspace and are added in fp32, in order.
    constexpr std::uint32_t kReduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    constexpr int kToTry = 16;
    std::vector<cublasLtMatmulHeuristicResult_t> found(device_.choices().is_measuring() ? kToTry : 1);
    int count = 0;
    cublasLtMatmulPreference_t preference = nullptr;
    if (!ok(cublasLtMatmulPreferenceCreate(&preference), kWhat)) return {};
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        return ok(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), kWhat);
    };
    const bool described = prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace) &&
                           prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReduction) &&
                           prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment) &&
                           prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment) &&
                           prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment) &&
                           prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    if (described)
        // "Not supported" is an answer, not a failure: the caller then works without the epilogue.
        plan.status =
            cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                           preference, static_cast<int>(found.size()), found.data(), &count);
    ok(cublasLtMatmulPreferenceDestroy(preference), kWhat);
    if (plan.status == CUBLAS_STATUS_SUCCESS && count == 0) plan.status = CUBLAS_STATUS_NOT_SUPPORTED;
    found.resize(plan.status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    return found;
}

// By its manual, the bytes are valid for the same version of cuBLASLt, and the plan's key includes that; an
// algorithm that does not fit this product is not taken.
bool Gemm::take_choice(const std::string& name, Plan& plan) {
    const auto known = device_.choices().find(name);
    if (!known || known->size() != sizeof plan.algorithm) return false;
    std::memcpy(&plan.algorithm, known->data(), sizeof plan.algorithm);
    cublasLtMatmulHeuristicResult_t checked{};
    const bool is_good = cublasLtMatmulAlgoCheck(handle_, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                                 &plan.algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
                         checked.workspaceSize <= kWorkspace;
    if (is_good) plan.status = CUBLAS_STATUS_SUCCESS;
    return is_good;
}

void Gemm::keep_fastest(const std::string& name, std::span<const cublasLtMatmulHeuristicResult_t> guesses,
                        In a, In b, In c, const Extras& extras, Plan& plan) {
    void* room = nullptr;  // not counted: a run, which has the choice already, does not take it
    if (cudaMalloc(&room, c.bytes()) != cudaSuccess) {
        cudaGetLastError();  // then it stays the first guess
        return;
    }
    constexpr const char* kWhat = "trying algorithms for a matrix product";
    device_.check(cudaMemsetAsync(room, 0, c.bytes(), device_.stream()), kWhat);
    constexpr int kTimes = 5;  // of each that are timed, after one that is not
    const float one = 1, beta = extras.added ? 1.0f : 0.0f;
    const bool in_place = !extras.added || extras.added.data<void>() == c.data<void>();
    const void* before = in_place ? room : extras.added.data<void>();
    StreamTimer timer(device_.stream());
    float least = std::numeric_limits<float>::infinity();
    for (const auto& guess : guesses) {
        const auto run = [&] {
            return cublasLtMatmul(handle_, plan.operation, &one, b.data<void>(), plan.b, a.data<void>(),
                                  plan.a, &beta, before, plan.c, room, plan.c, &guess.algo,
                                  workspace_.data<void>(), kWorkspace,
                                  device_.stream()) == CUBLAS_STATUS_SUCCESS;
        };
        const auto run_times = [&](int times) {
            return [&run, times] {
                bool ran = true;
                for (int i = 0; i < times && ran; ++i) ran = run();
                return ran;
            };
        };
        if (guess.state != CUBLAS_STATUS_SUCCESS || !timer.time(run_times(1))) continue;
        const auto milliseconds = timer.time(run_times(kTimes));
        if (!milliseconds || *milliseconds >= least) continue;
        least = *milliseconds;
        plan.algorithm = guess.algo;
    }
    device_.check(cudaFree(room), kWhat);
    if (!std::isfinite(least))
        return;  // none has run: multiply() says so if the first guess fails there, too
    std::string bytes(sizeof plan.algorithm, '\0');
    std::memcpy(bytes.data(), &plan.algorithm, bytes.size());
    device_.choices().set(name, std::move(bytes));
}

void Gemm::choose_algorithm(const Case& asked, In a, In b, In c, const Extras& extras, Plan& plan) {
    const std::string name = name_of(asked);
    if (take_choice(name, plan)) return;
    const auto found = guesses(asked.alignment, plan);
    if (found.empty()) return;
    plan.algorithm = found.front().algo;
    if (device_.choices().is_measuring()) keep_fastest(name, found, a, b, c, extras, plan);
}

bool Gemm::multiply(const Product& p, In a, In b, Out c, const Extras& extras) {
    if (device_.failed()) return false;
    const Tensor& before = extras.added ? extras.added : c;
    const Case asked{p,
                     a.elements() / p.stored_rows_a(),
                     b.elements() / p.stored_rows_b(),
                     c.elements() / p.rows,
                     a.type(),
                     c.type(),
                     std::min({alignment_of(a), alignment_of(b), alignment_of(c), alignment_of(before),
                               alignment_of(extras.bias), alignment_of(extras.before_gelu)})};
    const auto [place, is_new] = plans_.try_emplace(asked);
    Plan& plan = place->second;
    if (is_new && describe(asked, extras, plan)) choose_algorithm(asked, a, b, c, extras, plan);
    if (device_.failed()) return false;
    if (plan.status != CUBLAS_STATUS_SUCCESS) {
        if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
            ok(plan.status, "a product of " + std::to_string(p.rows) + " x " + std::to_string(p.inner) +
                                " x " + std::to_string(p.columns));
        return false;
    }
    constexpr const char* kWhat = "a matrix product";
    const Call call{handle_,
                    &plan,
                    a.data<void>(),
                    b.data<void>(),
                    before.data<void>(),
                    c.data<void>(),
                    extras.bias.data<void>(),
                    extras.before_gelu.data<void>(),
                    extras.added ? 1.0f : 0.0f,
                    workspace_.data<void>(),
                    device_.stream_of_step()};
    const auto result = static_cast<cublasStatus_t>(device_.step().queue(call));
    if (result == CUBLAS_STATUS_NOT_SUPPORTED && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        plan.status = result;  // offered, and refused when it is taken
        return false;
    }
    return ok(result, kWhat) && device_.check(cudaGetLastError(), kWhat);
}

}  // namespace dp::trainer
