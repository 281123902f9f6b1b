// SPDX-License-Identifier: Apache-2.0
//
// Row-major products with cuBLASLt: see gemm.hpp. cuBLASLt's matrices are column-major, and a row-major
// matrix read as column-major is its transpose: so cᵀ = op(b)ᵀ op(a)ᵀ is computed, with the operands
// exchanged. A bias along the columns of c is one along the rows of cᵀ, which is what cuBLASLt's epilogues
// add.
#include "trainer/devices/cuda/gemm.hpp"

namespace dp::trainer {

Gemm::Gemm(FirstFailure& failure, cudaStream_t stream) : failure_(failure), stream_(stream) {
    if (!failure_.check(cublasLtCreate(&handle_), "opening cuBLASLt")) return;
    failure_.check(cudaMalloc(&workspace_, kWorkspace), "memory for cuBLASLt's workspace");
}

// Results are not looked at: the process is about to end, or the device has failed already.
Gemm::~Gemm() {
    for (auto& [product, plan] : plans_) {
        if (plan.a != nullptr) cublasLtMatrixLayoutDestroy(plan.a);
        if (plan.b != nullptr) cublasLtMatrixLayoutDestroy(plan.b);
        if (plan.c != nullptr) cublasLtMatrixLayoutDestroy(plan.c);
        if (plan.operation != nullptr) cublasLtMatmulDescDestroy(plan.operation);
    }
    cudaFree(workspace_);
    if (handle_ != nullptr) cublasLtDestroy(handle_);
}

bool Gemm::describe(const Product& p, Plan& plan) {
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
           layout(plan.a, p.transpose_a ? p.inner : p.rows, p.transpose_a ? p.rows : p.inner) &&
           layout(plan.b, p.transpose_b ? p.columns : p.inner, p.transpose_b ? p.inner : p.columns) &&
           layout(plan.c, p.rows, p.columns);
}

void Gemm::choose_algorithm(Plan& plan) {
    constexpr const char* kWhat = "choosing an algorithm for a matrix product";
    cublasLtMatmulPreference_t preference = nullptr;
    if (!failure_.check(cublasLtMatmulPreferenceCreate(&preference), kWhat)) return;
    // Views begin at any element: promise no more than the alignment of a float.
    constexpr std::uint32_t kAlignment = sizeof(float);
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* value, std::size_t size) {
        return failure_.check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
                              kWhat);
    };
    const bool described = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &kAlignment, sizeof kAlignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &kAlignment, sizeof kAlignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &kAlignment, sizeof kAlignment) &&
                           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &kAlignment, sizeof kAlignment);
    if (described) {
        cublasLtMatmulHeuristicResult_t found{};
        int count = 0;
        // "Not supported" is an answer, not a failure: the caller then does without the epilogue.
        const cublasStatus_t result = cublasLtMatmulAlgoGetHeuristic(
            handle_, plan.operation, plan.b, plan.a, plan.c, plan.c, preference, 1, &found, &count);
        if (result != CUBLAS_STATUS_NOT_SUPPORTED) failure_.check(result, kWhat);
        plan.usable = result == CUBLAS_STATUS_SUCCESS && count > 0;
        plan.algorithm = found.algo;
    }
    failure_.check(cublasLtMatmulPreferenceDestroy(preference), kWhat);
}

const Gemm::Plan& Gemm::plan_for(const Product& product) {
    const auto [place, is_new] = plans_.try_emplace(product);
    if (is_new && describe(product, place->second)) choose_algorithm(place->second);
    return place->second;
}

bool Gemm::multiply(const Product& product, const float* a, const float* b, const float* bias, float* c) {
    const Plan& plan = plan_for(product);
    if (failure_.failed()) return false;
    if (!plan.usable) {
        if (product.epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
            failure_.keep("cuBLASLt has no algorithm for a product of " + std::to_string(product.rows) +
                          " x " + std::to_string(product.inner) + " x " + std::to_string(product.columns));
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
    const float one = 1, zero = 0;
    return failure_.check(cublasLtMatmul(handle_, plan.operation, &one, b, plan.b, a, plan.a, &zero, c,
                                         plan.c, c, plan.c, &plan.algorithm, workspace_, kWorkspace, stream_),
                          kWhat);
}

}  // namespace dp::trainer
