// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on CUDA through cuDNN, in fp32 (no TF32: the CPU is the reference) or in bf16 with fp32 sums,
// by algorithms that give the same bits each time. What is prepared for a shape is kept. If cuDNN has no such
// algorithm for bf16, the convolution runs in fp32, on copies.
#pragma once

#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "trainer/devices/cuda/check.hpp"
#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class CudaConvolutions {
 public:
    // Both belong to the device and outlive this. cuDNN is opened with the first call.
    CudaConvolutions(FirstFailure& failure, cudaStream_t stream);
    ~CudaConvolutions();
    CudaConvolutions(const CudaConvolutions&) = delete;
    CudaConvolutions& operator=(const CudaConvolutions&) = delete;

    // Queues y = x * w, without bias and activation.
    void forward(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& y);
    void backward_input(const Convolution& c, const Tensor& dy, const Tensor& w, const Tensor& dx);
    void backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x, const Tensor& dw);

 private:
    struct Plan {
        Type type = Type::f32;  // in which cuDNN works
        cudnnTensorDescriptor_t x = nullptr, y = nullptr;
        cudnnFilterDescriptor_t w = nullptr;
        cudnnConvolutionDescriptor_t convolution = nullptr;
        cudnnConvolutionFwdAlgoPerf_t forward{};
        cudnnConvolutionBwdDataAlgoPerf_t backward_input{};
        cudnnConvolutionBwdFilterAlgoPerf_t backward_parameters{};
    };

    FirstFailure& failure_;
    cudaStream_t stream_;
    cudnnHandle_t handle_ = nullptr;
    Workspace workspace_;
    Workspace x_copy_, w_copy_, y_copy_;  // in cuDNN's type, where that is not the tensor's
    std::map<std::tuple<Convolution, std::int64_t, Type>, Plan> plans_;

    bool ok(cudnnStatus_t result, const char* what);
    bool open();
    // The plan for tensors of that type; null after a failure.
    Plan* plan(const Convolution& c, std::int64_t rows, Type type);
    bool describe(const Convolution& c, std::int64_t rows, Plan& plan);
    bool choose_algorithms(Plan& plan);
    static void forget(Plan& plan);
    // A tensor as cuDNN reads it, and the memory where cuDNN writes one: the tensor's own, or that of `copy`.
    const void* input(const Plan& plan, const Tensor& tensor, Workspace& copy);
    void* output(const Plan& plan, const Tensor& tensor, Workspace& copy);
    // Call it before each operation: the math type is a property of the descriptor that all three share.
    // False after a failure.
    bool prepare(const Plan& plan, cudnnMathType_t math);
    // Copies what cuDNN wrote to `place` to the tensor.
    void finish(const Plan& plan, const void* place, const Tensor& tensor);
};

}  // namespace dp::trainer
