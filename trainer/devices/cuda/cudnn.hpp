// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's functions, looked up at the first convolution: other models do not need cuDNN, and a machine may
// not have it.
#pragma once

#include <cudnn.h>

namespace dp::trainer {

// The functions that are used, listed once: declared here, looked up in cudnn.cpp.
#define DP_CUDNN_FUNCTIONS(use)                                                                            \
    use(cudnnCreate) use(cudnnDestroy) use(cudnnSetStream) use(cudnnGetErrorString)                        \
        use(cudnnCreateTensorDescriptor) use(cudnnSetTensor4dDescriptor) use(cudnnDestroyTensorDescriptor) \
            use(cudnnCreateFilterDescriptor) use(cudnnSetFilter4dDescriptor)                               \
                use(cudnnDestroyFilterDescriptor) use(cudnnCreateConvolutionDescriptor)                    \
                    use(cudnnSetConvolution2dDescriptor) use(cudnnSetConvolutionMathType)                  \
                        use(cudnnDestroyConvolutionDescriptor) use(cudnnGetConvolutionForwardAlgorithm_v7) \
                            use(cudnnConvolutionForward) use(cudnnGetConvolutionBackwardDataAlgorithm_v7)  \
                                use(cudnnConvolutionBackwardData)                                          \
                                    use(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                     \
                                        use(cudnnConvolutionBackwardFilter)

struct Cudnn {
#define DP_DECLARE(name) decltype(&::name) name = nullptr;
    DP_CUDNN_FUNCTIONS(DP_DECLARE)
#undef DP_DECLARE
    const char* missing = nullptr;  // what is not there: the library or a function of it
};

// Loaded once and never unloaded.
const Cudnn& cudnn();

}  // namespace dp::trainer
