// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's functions, looked up when the first of them is needed: most models do not need cuDNN, and a machine may not have it. For
// convolution.cpp and cudnn_attention.cpp.
#pragma once

#include <cudnn.h>

#include "base/failure.hpp"

namespace dp::trainer {

inline constexpr const char* kCudnnLibrary = "libcudnn.so.9";

struct Cudnn {
    const char* missing = nullptr;  // what is not there: the library or a function of it
    void* library;

#define DP_CUDNN_FUNCTIONS(each)                         \
    each(cudnnGetVersion);                               \
    each(cudnnCreate);                                   \
    each(cudnnDestroy);                                  \
    each(cudnnSetStream);                                \
    each(cudnnGetErrorString);                           \
    each(cudnnCreateTensorDescriptor);                   \
    each(cudnnSetTensor4dDescriptor);                    \
    each(cudnnDestroyTensorDescriptor);                  \
    each(cudnnCreateFilterDescriptor);                   \
    each(cudnnSetFilter4dDescriptor);                    \
    each(cudnnDestroyFilterDescriptor);                  \
    each(cudnnCreateConvolutionDescriptor);              \
    each(cudnnSetConvolution2dDescriptor);               \
    each(cudnnSetConvolutionMathType);                   \
    each(cudnnDestroyConvolutionDescriptor);             \
    each(cudnnGetConvolutionForwardAlgorithm_v7);        \
    each(cudnnConvolutionForward);                       \
    each(cudnnGetConvolutionBackwardDataAlgorithm_v7);   \
    each(cudnnConvolutionBackwardData);                  \
    each(cudnnGetConvolutionBackwardFilterAlgorithm_v7); \
    each(cudnnConvolutionBackwardFilter);                \
    each(cudnnBackendCreateDescriptor);                  \
    each(cudnnBackendDestroyDescriptor);                 \
    each(cudnnBackendSetAttribute);                      \
    each(cudnnBackendGetAttribute);                      \
    each(cudnnBackendFinalize);                          \
    each(cudnnBackendExecute)

#define DP_DECLARE(name) decltype(&::name) name
    DP_CUDNN_FUNCTIONS(DP_DECLARE);
#undef DP_DECLARE

    Cudnn();

 private:
    template <typename Function>
    void look_up(Function& function, const char* name);
};

// Loaded once and never unloaded.
const Cudnn& cudnn();

// A failure says what was being done, and what cuDNN says of it.
Try<void> cudnn_done(cudnnStatus_t result, const char* what);

}  // namespace dp::trainer
