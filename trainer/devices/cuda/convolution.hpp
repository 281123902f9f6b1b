// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of the CUDA device through cuDNN, in fp32 (no TF32: the CPU is the reference) and by
// algorithms that give the same bits each time. What is prepared for a shape is kept.
#ifndef TRAINER_DEVICES_CUDA_CONVOLUTION_HPP
#define TRAINER_DEVICES_CUDA_CONVOLUTION_HPP

#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <utility>

#include "trainer/devices/cuda/check.hpp"
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
    void forward(const Convolution& c, std::int64_t rows, const float* x, const float* w, float* y);
    void backward_input(const Convolution& c, std::int64_t rows, const float* dy, const float* w, float* dx);
    // `db` may be null.
    void backward_parameters(const Convolution& c, std::int64_t rows, const float* dy, const float* x,
                             float* dw, float* db);

 private:
    struct Plan {
        cudnnTensorDescriptor_t x = nullptr, b = nullptr, y = nullptr;
        cudnnFilterDescriptor_t w = nullptr;
        cudnnConvolutionDescriptor_t convolution = nullptr;
        cudnnConvolutionFwdAlgoPerf_t forward{};
        cudnnConvolutionBwdDataAlgoPerf_t backward_input{};
        cudnnConvolutionBwdFilterAlgoPerf_t backward_parameters{};
    };

    FirstFailure& failure_;
    cudaStream_t stream_;
    cudnnHandle_t handle_ = nullptr;
    void* workspace_ = nullptr;
    std::size_t workspace_bytes_ = 0;
    std::map<std::pair<Convolution, std::int64_t>, Plan> plans_;

    bool ok(cudnnStatus_t result, const char* what);
    bool open();
    // Null after a failure.
    Plan* plan(const Convolution& c, std::int64_t rows);
    bool describe(const Convolution& c, std::int64_t rows, Plan& plan);
    bool choose_algorithms(Plan& plan);
    bool make_room(std::size_t bytes);
};

}  // namespace dp::trainer

#endif
