// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/cudnn_library.hpp"

#include <dlfcn.h>

#include <string>

#include "trainer/devices/cuda_libraries.hpp"

namespace dp::trainer {

template <typename Function>
void Cudnn::look_up(Function& function, const char* name) {
    function = library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
    if (function == nullptr) missing = library != nullptr ? name : kCudnnLibrary;
}

Cudnn::Cudnn() : library(open_cuda_library(kCudnnLibrary)) {
#define DP_LOOK_UP(name) look_up(name, #name)
    DP_CUDNN_FUNCTIONS(DP_LOOK_UP);
#undef DP_LOOK_UP
}

const Cudnn& cudnn() {
    static const Cudnn loaded;
    return loaded;
}

Try<void> cudnn_done(cudnnStatus_t result, const char* what) {
    if (result == CUDNN_STATUS_SUCCESS) return {};
    return dp::fail(std::string(what) + ": cuDNN says " + cudnn().cudnnGetErrorString(result));
}

}  // namespace dp::trainer
