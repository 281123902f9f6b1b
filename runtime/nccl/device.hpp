// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device of this thread, from the driver: libdp-nccl does not link the CUDA runtime, because a
// program may have its own.
#pragma once

#include <dlfcn.h>

#include <array>
#include <string>

namespace dp {

// The PCI bus id of the calling thread's current device, "0000:17:00.0"; "" if there is no driver or no
// current device. Thread-safe.
inline std::string current_device() {
    // From cuda.h: CUresult and CUdevice are ints, 0 is success.
    using ContextGetDevice = int (*)(int*);
    using DeviceGetBusId = int (*)(char*, int, int);
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) return "";
    const auto get_device = reinterpret_cast<ContextGetDevice>(dlsym(driver, "cuCtxGetDevice"));
    const auto get_bus_id = reinterpret_cast<DeviceGetBusId>(dlsym(driver, "cuDeviceGetPCIBusId"));
    std::array<char, 32> id{};
    int device = 0;
    const bool found = get_device != nullptr && get_bus_id != nullptr && get_device(&device) == 0 &&
                       get_bus_id(id.data(), static_cast<int>(id.size()), device) == 0;
    dlclose(driver);
    return found ? id.data() : "";
}

}  // namespace dp
