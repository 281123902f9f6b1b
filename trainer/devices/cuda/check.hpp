// SPDX-License-Identifier: Apache-2.0
//
// The first failure of a CUDA device. Every call of CUDA and cuBLASLt in this folder passes its
// result through here.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <optional>
#include <string>
#include <utility>

#include "trainer/base/result.hpp"

namespace dp::trainer {

class FirstFailure {
 public:
    bool failed() const { return error_.has_value(); }
    const std::optional<Error>& error() const { return error_; }

    // True for success; else records the failure if it is the first. `what` reads like "copying to the GPU".
    bool check(cudaError_t result, const char* what) {
        if (result == cudaSuccess) return true;
        std::string advice = result == cudaErrorMemoryAllocation ? "; give a smaller --batch-size" : "";
        keep(std::string(what) + ": " + cudaGetErrorString(result) + advice);
        return false;
    }
    bool check(cublasStatus_t result, const char* what) {
        if (result == CUBLAS_STATUS_SUCCESS) return true;
        keep(std::string(what) + ": cuBLASLt says " + cublasLtGetStatusString(result));
        return false;
    }
    void keep(const std::string& message) { keep(Error{Fault::device, "cuda: " + message}); }
    void keep(Error error) {
        if (!error_) error_ = std::move(error);
    }

 private:
    std::optional<Error> error_;
};

}  // namespace dp::trainer
