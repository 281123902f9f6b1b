// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of the CUDA device through cuBLASLt, in fp32 (no TF32: the CPU is the reference). The
// algorithm for a shape is chosen once and kept.
#ifndef TRAINER_DEVICES_CUDA_GEMM_HPP
#define TRAINER_DEVICES_CUDA_GEMM_HPP

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <map>
#include <utility>

#include "trainer/devices/cuda/check.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// c [rows, columns] = op(a) op(b) summed over `inner`, row-major; a and b are given as stored, op is the
// transposition.
struct Product {
    std::int64_t rows, columns, inner;
    bool transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;

    auto operator<=>(const Product&) const = default;
};

class Gemm {
 public:
    // Both belong to the device and outlive this. `sms`: on how many the stream's kernels run; 0: on all.
    Gemm(FirstFailure& failure, cudaStream_t stream, int sms);
    ~Gemm();
    Gemm(const Gemm&) = delete;
    Gemm& operator=(const Gemm&) = delete;

    // Queues the product, which takes c's place or is added to it. `bias` [columns] for epilogues with one,
    // else null. False where cuBLASLt has no algorithm for this product with this epilogue (then nothing was
    // queued, and without an epilogue that is a failure).
    bool multiply(const Product& product, const float* a, const float* b, const float* bias, float* c,
                  Write write = Write::set);

 private:
    struct Plan {
        cublasLtMatmulDesc_t operation = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
        cublasLtMatmulAlgo_t algorithm{};
        cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;  // whether there is an algorithm
    };

    static constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

    FirstFailure& failure_;
    cudaStream_t stream_;
    int sms_;
    cublasLtHandle_t handle_ = nullptr;
    void* workspace_ = nullptr;
    // By product and by the alignment of its operands, which decides how wide the loads may be.
    std::map<std::pair<Product, std::uint32_t>, Plan> plans_;

    bool describe(const Product& product, const float* bias, Plan& plan);
    void choose_algorithm(std::uint32_t alignment, Plan& plan);
};

}  // namespace dp::trainer

#endif
