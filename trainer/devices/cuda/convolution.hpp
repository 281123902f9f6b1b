// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on CUDA through cuDNN, in fp32 (no TF32: the CPU is the reference) or in bf16 with fp32 sums,
// by algorithms that give the same bits each time. What is prepared for a shape is kept. If cuDNN has no such
// algorithm for bf16, the convolution runs in fp32, on copies.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {

class CudaConvolutions {
 public:
    // The device owns this. cuDNN is opened with the first call.
    explicit CudaConvolutions(CudaDevice& device) : device_(device) {}
    ~CudaConvolutions();
    CudaConvolutions(const CudaConvolutions&) = delete;
    CudaConvolutions& operator=(const CudaConvolutions&) = delete;

    struct Plan {
        Type type = Type::f32;  // in which cuDNN works
        cudnnTensorDescriptor_t x = nullptr, y = nullptr;
        cudnnFilterDescriptor_t w = nullptr;
        cudnnConvolutionDescriptor_t convolution = nullptr;
        cudnnConvolutionFwdAlgoPerf_t forward{};
        cudnnConvolutionBwdDataAlgoPerf_t backward_input{};
        cudnnConvolutionBwdFilterAlgoPerf_t backward_parameters{};
    };

    // Calls cuDNN's function with two operands and the result, each with its descriptor: with the tensors, or
    // with copies in the plan's type, in the device's workspace. Keeps a failure. `batch`: x or dy.
    template <typename Algorithm, typename Function, typename One, typename Other, typename Result>
    void run(const Convolution& c, In batch, const char* what, Algorithm Plan::*algorithm, Function function,
             In one, One Plan::*of_one, In other, Other Plan::*of_other, Out result, Result Plan::*of_result);

    // As of Device; 0 if cuDNN cannot do it: then the convolution fails and says why.
    std::int64_t scratch(const Convolution& c, std::int64_t rows, Type type);

 private:
    CudaDevice& device_;
    cudnnHandle_t handle_ = nullptr;
    std::map<std::tuple<Convolution, std::int64_t, Type>, Plan> plans_;

    Try<void> open();
    // The plan for tensors of that type.
    Try<Plan*> plan(const Convolution& c, std::int64_t rows, Type type);
    Try<void> describe(const Convolution& c, std::int64_t rows, Plan& plan);
    // In bytes; a larger one is taken only where there is no smaller one.
    Try<std::size_t> largest_workspace() const;
    // Returns false if cuDNN has nothing that may be taken.
    bool choose_algorithms(std::size_t most, Plan& plan);
    static void forget(Plan& plan);
};

}  // namespace dp::trainer
