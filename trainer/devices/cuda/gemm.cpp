// SPDX-License-Identifier: Apache-2.0
//
// Row-major products with cuBLASLt: see gemm.hpp. cuBLASLt's matrices are column-major, and a row-major
// matrix read as column-major is its transpose: so cᵀ = op(b)ᵀ op(a)ᵀ is computed, with the operands
// exchanged. A bias along the columns of c is one along the rows of cᵀ, which is what cuBLASLt's epilogues
// add.
#include "trainer/devices/cuda/gemm.hpp"

#include <algorithm>

namespace dp::trainer {
namespace {

// The largest power of two, up to 256, that divides the address.
std::uint32_t alignment_of(const float* data) {
    constexpr std::uintptr_t kMost = 256;
    const auto address = reinterpret_cast<std::uintptr_t>(data) | kMost;
    return static_cast<std::uint32_t>(address & (~address + 1));
}

}  // namespace

Gemm::Gemm(FirstFailure& failure, cudaStream_t stream, int sms)
    : failure_(failure), stream_(stream), sms_(sms) {
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

bool Gemm::describe(const Product& p, const float* bias, Plan& plan) {
    constexpr const char* kWhat = "describing a matrix product";
    auto ok = [&](cublasStatus_t result) { return failure_.check(result, kWhat); };
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;  // of b, which comes first
    const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    auto layout = [&](cublasLtMatrixLayout_t& out, std::int64_t rows, std::int64_t columns) {
        // Row-major [rows, columns] is column-major [columns, rows] with leading dimension `columns`.
        return ok(cublasLtMatrixLayoutCreate(&out, CUDA_R_32F, static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), columns));
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
           (bias == nullptr || ok(cublasLtMatmulDescSetAttribute(
                                   plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias))) &&
           layout(plan.a, p.transpose_a ? p.inner : p.rows, p.transpose_a ? p.rows : p.inner) &&
           layout(plan.b, p.transpose_b ? p.columns : p.inner, p.transpose_b ? p.inner : p.columns) &&
           layout(plan.c, p.rows, p.columns);
}

void Gemm::choose_algorithm(std::uint32_t alignment, Plan& plan) {
    constexpr const char* kWhat = "choosing an algorithm for a matrix product";
    cublasLtMatmulPreference_t preference = nullptr;
    if (!failure_.check(cublasLtMatmulPreferenceCreate(&preference), kWhat)) return;
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* value, std::size_t size) {
        return failure_.check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                              kWhat);
    };
    const bool described = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment);
    if (described) {
        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        // "Not supported" is an answer, not a failure: the caller then does without the epilogue.
        plan.status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.b, plan.a, plan.c, plan.c,
                                                     preference, 1, &found, &count);
        if (plan.status == CUBLAS_STATUS_SUCCESS && count == 0) plan.status = CUBLAS_STATUS_NOT_SUPPORTED;
        plan.algorithm = found.algo;
    }
    failure_.check(cublasLtMatmulPreferenceDestroy(preference), kWhat);
}

bool Gemm::multiply(const Product& product, const float* a, const float* b, const float* bias, float* c,
                    Write write) {
    if (failure_.failed()) return false;
    const std::uint32_t alignment = std::min({alignment_of(a), alignment_of(b), alignment_of(c)});
    const auto [place, is_new] = plans_.try_emplace({product, alignment});
    Plan& plan = place->second;
    if (is_new && describe(product, bias, plan)) choose_algorithm(alignment, plan);
    if (failure_.failed()) return false;
    if (plan.status != CUBLAS_STATUS_SUCCESS) {
        if (product.epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
            failure_.check(plan.status,
                           ("a product of " + std::to_string(product.rows) + " x " +
                            std::to_string(product.inner) + " x " + std::to_string(product.columns))
                               .c_str());
        }
        return false;
    }
    constexpr const char* kWhat = "a matrix product";
    if (bias != nullptr &&
        !failure_.check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                       &bias, sizeof bias),
                        kWhat)) {
        return false;
    }
    const float one = 1, beta = write == Write::add ? 1.0f : 0.0f;
    return failure_.check(cublasLtMatmul(handle_, plan.operation, &one, b, plan.b, a, plan.a, &beta, c,
                                         plan.c, c, plan.c, &plan.algorithm, workspace_, kWorkspace, stream_),
                          kWhat);
}

}  // namespace dp::trainer
