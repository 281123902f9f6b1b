// SPDX-License-Identifier: Apache-2.0
//
// Row-major products with cuBLASLt: see gemm.hpp. cuBLASLt's matrices are column-major, and a row-major
// matrix read as column-major is its transpose: so cᵀ = op(b)ᵀ op(a)ᵀ is computed, with the operands
// exchanged. A bias along the columns of c is one along the rows of cᵀ, which is what cuBLASLt's epilogues
// add.
#include "trainer/devices/cuda/gemm.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "trainer/devices/cuda/image_kernels.hpp"

namespace dp::trainer {
namespace {

// The largest power of two, up to 256, that divides the address.
std::uint32_t alignment_of(const Tensor& tensor) {
    constexpr std::uintptr_t kMost = 256;
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data<void>()) | kMost;
    return static_cast<std::uint32_t>(address & (~address + 1));
}

// By which the choice of `trainer compile` is found.
std::string choice_name(const Product& p, Type factors, Type result, std::uint32_t alignment) {
    std::string name = "product";
    for (const std::int64_t number :
         {p.rows, p.columns, p.inner, std::int64_t{p.transpose_a}, std::int64_t{p.transpose_b},
          static_cast<std::int64_t>(p.epilogue), static_cast<std::int64_t>(factors),
          static_cast<std::int64_t>(result), std::int64_t{alignment}})
        name += " " + std::to_string(number);
    return name;
}

cudaDataType_t name_of(Type type) {
    return type == Type::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// How far apart the rows of a matrix are to lie. The fast kernels for bf16 want multiples of 16 bytes, which
// GPT-2's vocabulary of 50257 does not give its logits; of a matrix that large, copies cost less than the
// slow ones.
std::int64_t stride_of(std::int64_t rows, std::int64_t columns, Type type) {
    constexpr std::int64_t kNumbers = 8, kLarge = std::int64_t{1} << 20;
    if (type != Type::bf16 || rows * columns < kLarge) return columns;
    return (columns + kNumbers - 1) / kNumbers * kNumbers;
}

}  // namespace

Gemm::Gemm(FirstFailure& failure, cudaStream_t stream, int sms, TunedChoices& choices)
    : failure_(failure),
      stream_(stream),
      sms_(sms),
      choices_(choices),
      a_copy_(failure),
      b_copy_(failure),
      c_copy_(failure) {
    if (!failure_.check(cublasLtCreate(&handle_), "opening cuBLASLt")) return;
    failure_.check(cudaMalloc(&workspace_, kWorkspace), "memory for cuBLASLt's workspace");
}

// Results are not looked at: the process is about to end, or the device has failed already.
Gemm::~Gemm() {
    for (auto& [key, plan] : plans_) {
        if (plan.a != nullptr) cublasLtMatrixLayoutDestroy(plan.a);
        if (plan.b != nullptr) cublasLtMatrixLayoutDestroy(plan.b);
        if (plan.c != nullptr) cublasLtMatrixLayoutDestroy(plan.c);
        if (plan.operation != nullptr) cublasLtMatmulDescDestroy(plan.operation);
    }
    cudaFree(workspace_);
    if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Tensor Gemm::matrix(const Tensor& tensor, std::int64_t rows, std::int64_t columns, Workspace& copy) {
    const std::int64_t stride = stride_of(rows, columns, tensor.type());
    if (stride == columns) return tensor.view(0, {rows, columns});
    auto* memory = copy.take<std::byte>(rows * stride * static_cast<std::int64_t>(size_of(tensor.type())));
    return {std::shared_ptr<void>(std::shared_ptr<void>(), memory), tensor.type(), {rows, stride}};
}

void Gemm::copy(const Tensor& from, const Tensor& to, std::int64_t columns) {
    if (from.data<void>() != to.data<void>())
        kernels::copy_columns(from, 0, to, 0, columns, Write::set, stream_);
}

bool Gemm::describe(const Product& p, const Tensor& a, const Tensor& b, const Tensor& c, const void* bias,
                    Plan& plan) {
    constexpr const char* kWhat = "describing a matrix product";
    const cudaDataType_t result = name_of(c.type());
    auto ok = [&](cublasStatus_t status) { return failure_.check(status, kWhat); };
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;  // of b, which comes first
    const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    auto layout = [&](cublasLtMatrixLayout_t& out, const Tensor& matrix, std::int64_t rows,
                      std::int64_t columns) {
        // Row-major [rows, columns] is column-major [columns, rows] with leading dimension `columns`, or more
        // where rows are longer.
        return ok(cublasLtMatrixLayoutCreate(&out, name_of(matrix.type()),
                                             static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), matrix.columns()));
    };
    return ok(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           ok(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                             sizeof first)) &&
           ok(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                             sizeof second)) &&
           ok(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue,
                                             sizeof p.epilogue)) &&
           (sms_ == 0 || ok(cublasLtMatmulDescSetAttribute(
                             plan.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms_, sizeof sms_))) &&
           (bias == nullptr ||
            (ok(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                               sizeof bias)) &&
             ok(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &result,
                                               sizeof result)))) &&
           layout(plan.a, a, p.stored_rows_a(), p.stored_columns_a()) &&
           layout(plan.b, b, p.stored_rows_b(), p.stored_columns_b()) && layout(plan.c, c, p.rows, p.columns);
}

std::vector<cublasLtMatmulHeuristicResult_t> Gemm::guesses(std::uint32_t alignment, Plan& plan) {
    constexpr const char* kWhat = "choosing an algorithm for a matrix product";
    // Where the sum is split up, the parts lie in the workspace and are added in fp32, in their order.
    constexpr std::uint32_t kReduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    constexpr int kToTry = 16;
    std::vector<cublasLtMatmulHeuristicResult_t> found(choices_.is_measuring() ? kToTry : 1);
    int count = 0;
    cublasLtMatmulPreference_t preference = nullptr;
    if (!failure_.check(cublasLtMatmulPreferenceCreate(&preference), kWhat)) return {};
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* value, std::size_t size) {
        return failure_.check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                              kWhat);
    };
    const bool described = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace) &&
                           set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kReduction, sizeof kReduction) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment);
    if (described)
        // "Not supported" is an answer, not a failure: the caller then does without the epilogue.
        plan.status =
            cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                           preference, static_cast<int>(found.size()), found.data(), &count);
    failure_.check(cublasLtMatmulPreferenceDestroy(preference), kWhat);
    if (plan.status == CUBLAS_STATUS_SUCCESS && count == 0) plan.status = CUBLAS_STATUS_NOT_SUPPORTED;
    found.resize(plan.status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
    return found;
}

void Gemm::choose_algorithm(const Case& asked, const Tensor& a, const Tensor& b, const Tensor& c,
                            Plan& plan) {
    const std::string name = choice_name(asked.product, asked.factors, asked.result, asked.alignment);
    if (take_choice(name, plan)) return;
    const auto found = guesses(asked.alignment, plan);
    if (found.empty()) return;
    plan.algorithm = found.front().algo;
    if (choices_.is_measuring()) keep_fastest(name, found, a, b, c, plan);
}

bool Gemm::multiply(const Product& p, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
                    Write write) {
    if (failure_.failed()) return false;
    const Tensor left = matrix(a, p.stored_rows_a(), p.stored_columns_a(), a_copy_);
    const Tensor right = matrix(b, p.stored_rows_b(), p.stored_columns_b(), b_copy_);
    const Tensor result = matrix(c, p.rows, p.columns, c_copy_);
    if (failure_.failed()) return false;
    const Case asked{p, a.type(), c.type(),
                     std::min({alignment_of(left), alignment_of(right), alignment_of(result)})};
    const void* added = bias ? bias.data<void>() : nullptr;
    const auto [place, is_new] = plans_.try_emplace(asked);
    Plan& plan = place->second;
    if (is_new && describe(p, left, right, result, added, plan))
        choose_algorithm(asked, left, right, result, plan);
    if (failure_.failed()) return false;
    if (plan.status != CUBLAS_STATUS_SUCCESS) {
        if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
            failure_.check(plan.status, ("a product of " + std::to_string(p.rows) + " x " +
                                         std::to_string(p.inner) + " x " + std::to_string(p.columns))
                                            .c_str());
        }
        return false;
    }
    constexpr const char* kWhat = "a matrix product";
    if (added != nullptr &&
        !failure_.check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                       &added, sizeof added),
                        kWhat)) {
        return false;
    }
    copy(a, left, p.stored_columns_a());
    copy(b, right, p.stored_columns_b());
    if (write == Write::add) copy(c, result, p.columns);
    const float one = 1, beta = write == Write::add ? 1.0f : 0.0f;
    const bool done = failure_.check(
        cublasLtMatmul(handle_, plan.operation, &one, right.data<void>(), plan.b, left.data<void>(), plan.a,
                       &beta, result.data<void>(), plan.c, result.data<void>(), plan.c, &plan.algorithm,
                       workspace_, kWorkspace, stream_),
        kWhat);
    if (done) copy(result, c, p.columns);
    return done && failure_.check(cudaGetLastError(), kWhat);
}

}  // namespace dp::trainer
