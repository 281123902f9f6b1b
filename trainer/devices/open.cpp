// SPDX-License-Identifier: Apache-2.0
//
// Opening devices, and finding the CUDA module with the libraries it needs: see open.hpp.
#include "trainer/devices/open.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/devices/cpu.hpp"
#include "trainer/devices/cuda/module.hpp"

namespace dp::trainer {
namespace {

#ifdef DP_TRAINER_CUDA_LIBRARIES

// Where CUDA's libraries lie when ldconfig does not know them. LD_LIBRARY_PATH is dlopen's own business.
std::vector<std::string> cuda_directories() {
    std::vector<std::string> directories;
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "NCCL_HOME"}) {
        if (const char* root = std::getenv(variable); root != nullptr && *root != '\0') {
            directories.push_back(std::string(root) + "/lib64");
            directories.push_back(std::string(root) + "/lib");
        }
    }
    directories.push_back("/usr/local/cuda/lib64");
    return directories;
}

// Loads a library by its name so that the module, which needs that name, finds it loaded. Failure is the
// module's to tell.
void preload(const std::string& library) {
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    for (const auto& directory : cuda_directories()) {
        if (dlopen(fmt::format("{}/{}", directory, library).c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr)
            return;
    }
}

Result<const CudaModule*> load_module() {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        return fail(Fault::device, "no NVIDIA driver on this machine (libcuda.so.1 is not found)");
    }
    for (const char* library : {DP_TRAINER_CUDA_LIBRARIES}) preload(library);
    void* module = dlopen(kCudaModuleFile, RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        return fail(Fault::device,
                    fmt::format("the CUDA part cannot be loaded: {}; put CUDA's libraries into "
                                "LD_LIBRARY_PATH or set CUDA_HOME",
                                dlerror()));
    }
    using Entry = const CudaModule* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(module, kCudaModuleSymbol));
    if (entry == nullptr || entry()->version != kCudaModuleVersion) {
        return fail(
            Fault::device,
            fmt::format("{} is of another build than this trainer; install both together", kCudaModuleFile));
    }
    return entry();
}

#else

Result<const CudaModule*> load_module() {
    return fail(Fault::device, "this trainer was built without CUDA");
}

#endif

// Loaded once and never unloaded: CUDA does not like to be.
Result<const CudaModule*>& module() {
    static Result<const CudaModule*> loaded = load_module();
    return loaded;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda(const GpuShare& gpu) {
    if (!module()) return tl::make_unexpected(module().error());
    return (*module())->open(gpu);
}

Result<std::unique_ptr<Communicator>> open_nccl(Context& context, Device& device) {
    if (!module()) return tl::make_unexpected(module().error());
    return (*module())->open_nccl(context.get(), device);
}

Result<OpenedDevice> open_device(DeviceChoice choice, const GpuShare& gpu, int threads) {
    if (choice == DeviceChoice::cpu) return OpenedDevice{open_cpu(threads), std::nullopt};
    auto cuda = open_cuda(gpu);
    if (cuda) return OpenedDevice{std::move(*cuda), std::nullopt};
    if (choice == DeviceChoice::cuda) {
        return fail(Fault::device,
                    fmt::format("--device=cuda cannot be had, {}; --device=cpu works everywhere",
                                cuda.error().message));
    }
    return OpenedDevice{open_cpu(threads), fmt::format("training on the CPU: {}", cuda.error().message)};
}

}  // namespace dp::trainer
