// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/cudnn.hpp"

#include <dlfcn.h>

#include "trainer/devices/cuda_libraries.hpp"

namespace dp::trainer {
namespace {

constexpr const char* kLibrary = "libcudnn.so.9";

Cudnn load() {
    Cudnn found;
    void* library = open_cuda_library(kLibrary);
    if (library == nullptr) {
        found.missing = kLibrary;
        return found;
    }
#define DP_LOOK_UP(name)                                                        \
    found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, #name)); \
    if (found.name == nullptr) found.missing = #name;
    DP_CUDNN_FUNCTIONS(DP_LOOK_UP)
#undef DP_LOOK_UP
    return found;
}

}  // namespace

const Cudnn& cudnn() {
    static const Cudnn loaded = load();
    return loaded;
}

}  // namespace dp::trainer
