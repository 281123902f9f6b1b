// SPDX-License-Identifier: Apache-2.0
//
// Finding CUDA's libraries where ldconfig does not know them. Used by the trainer before it loads the CUDA
// module, and by the module itself.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace dp::trainer {

// Opens a library by name; null if it is not found (dlerror() says why). A library that needs it by that name
// then finds it loaded.
inline void* open_cuda_library(const std::string& name) {
    const auto open_in = [&](const std::string& folder) {
        return dlopen((folder + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
    };
    if (void* found = open_in("")) return found;  // dlopen knows LD_LIBRARY_PATH
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "NCCL_HOME"}) {
        const char* root = std::getenv(variable);
        if (root == nullptr || *root == '\0') continue;
        for (const char* folder : {"/lib64/", "/lib/", "/extras/CUPTI/lib64/"})
            if (void* found = open_in(std::string(root) + folder)) return found;
    }
    for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"})
        if (void* found = open_in(folder)) return found;
    return nullptr;
}

}  // namespace dp::trainer
