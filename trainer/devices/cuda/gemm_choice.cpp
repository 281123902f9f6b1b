// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt's algorithms for a matrix product, tried one by one: `trainer compile` lets gemm.cpp do that for
// each product of a training and keeps the fastest. A run uses it instead of cuBLASLt's guess.
#include <cstring>
#include <limits>
#include <memory>

#include "trainer/devices/cuda/gemm.hpp"

namespace dp::trainer {
namespace {

constexpr int kTimes = 5;  // of each that are timed, after one that is not

// Null if CUDA has none.
std::shared_ptr<CUevent_st> new_event() {
    cudaEvent_t event = nullptr;
    if (cudaEventCreate(&event) != cudaSuccess) return nullptr;
    return {event, cudaEventDestroy};
}

}  // namespace

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
                        In a, In b, In c, Plan& plan) {
    void* room = nullptr;  // not counted: a run, which has the choice already, does not take it
    if (cudaMalloc(&room, c.bytes()) != cudaSuccess) {
        cudaGetLastError();  // then it stays the first guess
        return;
    }
    const float one = 1, zero = 0;
    const auto begin = new_event(), end = new_event();
    float least = std::numeric_limits<float>::infinity();
    for (const auto& guess : guesses) {
        const auto run = [&] {
            return cublasLtMatmul(handle_, plan.operation, &one, b.data<void>(), plan.b, a.data<void>(),
                                  plan.a, &zero, room, plan.c, room, plan.c, &guess.algo,
                                  workspace_.data<void>(), kWorkspace,
                                  device_.stream()) == CUBLAS_STATUS_SUCCESS;
        };
        bool ran = guess.state == CUBLAS_STATUS_SUCCESS && run() &&
                   cudaEventRecord(begin.get(), device_.stream()) == cudaSuccess;
        for (int i = 0; i < kTimes && ran; ++i) ran = run();
        float milliseconds = 0;
        ran = ran && cudaEventRecord(end.get(), device_.stream()) == cudaSuccess &&
              cudaEventSynchronize(end.get()) == cudaSuccess &&
              cudaEventElapsedTime(&milliseconds, begin.get(), end.get()) == cudaSuccess;
        if (!ran || milliseconds >= least) continue;
        least = milliseconds;
        plan.algorithm = guess.algo;
    }
    device_.check(cudaFree(room), "trying algorithms for a matrix product");
    std::string bytes(sizeof plan.algorithm, '\0');
    std::memcpy(bytes.data(), &plan.algorithm, bytes.size());
    device_.choices().set(name, std::move(bytes));
}

}  // namespace dp::trainer
