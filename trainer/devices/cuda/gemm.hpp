// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on CUDA through cuBLASLt: in fp32 (no TF32: the CPU is the reference), or in bf16 with fp32
// sums. The algorithm for a shape is chosen once and kept, and each gives the same bits each time. It is
// cuBLASLt's guess, or what was fastest when `trainer compile` tried its guesses one by one.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {

// c [rows, columns] = op(a) op(b) summed over `inner`, row-major; a and b are given as stored, op is
// transposition or not. Rows of the tensors may be longer than those of the matrices.
struct Product {
    std::int64_t rows, columns, inner;
    bool transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;

    std::int64_t stored_rows_a() const { return transpose_a ? inner : rows; }
    std::int64_t stored_columns_a() const { return transpose_a ? rows : inner; }
    std::int64_t stored_rows_b() const { return transpose_b ? columns : inner; }
    std::int64_t stored_columns_b() const { return transpose_b ? inner : columns; }
    auto operator<=>(const Product&) const = default;
};

// A product's other operands; empty tensors if not used.
struct Extras {
    Tensor bias =
        {};  // of c's type: [columns], for epilogues with one; [rows], what BGRADB writes, the sums of op(a)'s rows
    Tensor before_gelu = {};  // as c: what GELU_AUX_BIAS writes, and DGELU reads
    Tensor added = {};        // as c, or c itself: the product is added to it
};

class Gemm {
 public:
    static constexpr std::int64_t kWorkspace = 32 << 20;  // bytes: what NVIDIA recommends for Hopper

    // The device owns this.
    explicit Gemm(CudaDevice& device);
    ~Gemm();
    Gemm(const Gemm&) = delete;
    Gemm& operator=(const Gemm&) = delete;

    // Queues the product, which replaces c. a and b have one type; so do c and the extras. False if cuBLASLt
    // has no algorithm for this product with this epilogue (then nothing was queued, and without an epilogue
    // it is a failure).
    bool multiply(const Product& product, In a, In b, Out c, const Extras& extras = {});

 private:
    // The key of an algorithm: the alignment of the operands and of the extras decides how wide loads may be.
    struct Case {
        Product product;
        std::int64_t length_a, length_b, length_c;  // numbers from one row to the next
        Type factors, result;
        std::uint32_t alignment;  // in bytes

        auto operator<=>(const Case&) const = default;
    };
    struct Plan {
        cublasLtMatmulDesc_t operation = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
        cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;  // whether there is an algorithm
    };

    // As captured_step.hpp has it; a plan is never changed once it is used.
    struct Call {
        cublasLtHandle_t handle;
        const Plan* plan;
        const void *a, *b, *before;
        void *c, *bias, *before_gelu;
        float beta;
        void* workspace;
        cudaStream_t stream;

        int queue() const;
        bool is_like(const Call& other) const { return plan == other.plan; }
        bool operator==(const Call&) const = default;
    };

    CudaDevice& device_;
    cublasLtHandle_t handle_ = nullptr;
    Tensor workspace_;
    std::map<Case, Plan> plans_;

    // True for success; else the device has failed.
    bool ok(cublasStatus_t result, std::string_view what);
    // The name under which the choice is stored.
    static std::string name_of(const Case& asked);
    bool describe(const Case& asked, const Extras& extras, Plan& plan);
    template <typename Value>
    bool set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value);
    // Sets the extras' addresses, which may differ each time; null: there is none.
    static cublasStatus_t point_to(const void* bias, const void* before_gelu, const Plan& plan);
    // cuBLASLt's best guess; while `trainer compile` measures, all its guesses.
    std::vector<cublasLtMatmulHeuristicResult_t> guesses(std::uint32_t alignment, Plan& plan);
    void choose_algorithm(const Case& asked, In a, In b, In c, const Extras& extras, Plan& plan);

    // Takes the stored choice, if it is still an algorithm for this product.
    bool take_choice(const std::string& name, Plan& plan);
    // Times them on these operands, as the product will run but writing to other memory than c's, and keeps the fastest of those
    // that run.
    void keep_fastest(const std::string& name, std::span<const cublasLtMatmulHeuristicResult_t> guesses, In a,
                      In b, In c, const Extras& extras, Plan& plan);
};

}  // namespace dp::trainer
