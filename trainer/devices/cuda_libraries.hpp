// SPDX-License-Identifier: Apache-2.0
//
// Finding CUDA's libraries where ldconfig does not know them. Used by the trainer before it loads the CUDA
// module, and by the module itself.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace dp::trainer {

// LD_LIBRARY_PATH is dlopen's own business.
inline std::vector<std::string> cuda_directories() {
    std::vector<std::string> directories;
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "NCCL_HOME"}) {
        if (const char* root = std::getenv(variable); root != nullptr && *root != '\0') {
            directories.push_back(std::string(root) + "/lib64");
            directories.push_back(std::string(root) + "/lib");
        }
    }
    directories.emplace_back("/usr/local/cuda/lib64");
    return directories;
}

// Opens a library by name; null if it is not found (dlerror() says why). A library that needs it by that name
// then finds it loaded.
inline void* open_cuda_library(const std::string& name) {
    if (void* found = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL)) return found;
    for (const auto& directory : cuda_directories())
        if (void* found = dlopen((directory + "/" + name).c_str(), RTLD_NOW | RTLD_GLOBAL)) return found;
    return nullptr;
}

}  // namespace dp::trainer
