// SPDX-License-Identifier: Apache-2.0
//
// Opening devices, and finding the CUDA module with the libraries it needs: see open.hpp.
#include "trainer/devices/open.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/devices/cuda/module.hpp"
#include "trainer/devices/cuda_libraries.hpp"
#include "trainer/devices/gpu_place.hpp"
#include "trainer/devices/nccl_version.hpp"

namespace dp::trainer {
namespace {

#ifdef DP_TRAINER_CUDA_LIBRARIES

Result<const CudaModule*> load_module() {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr)
        return fail(Fault::device, "no NVIDIA driver on this machine (libcuda.so.1 is not found)");
    // The module needs these libraries by name and finds them loaded. If one is missing, the module says so.
    for (const char* library : {DP_TRAINER_CUDA_LIBRARIES}) open_cuda_library(library);
    int nccl = kOldestNccl;  // where it is missing, dlopen says so
    if (const auto version_of = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "ncclGetVersion")))
        version_of(&nccl);
    if (const auto old = old_nccl_text(nccl)) return fail(Fault::device, *old);
    void* module = dlopen(kCudaModuleFile, RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr)
        return fail(Fault::device,
                    "cannot load the CUDA module: {}; add the folder of CUDA's libraries to "
                    "LD_LIBRARY_PATH or set CUDA_HOME",
                    dlerror());
    const auto entry = reinterpret_cast<const CudaModule* (*)()>(dlsym(module, kCudaModuleSymbol));
    if (entry == nullptr || entry()->version != kCudaModuleVersion)
        return fail(Fault::device, "{} is from another build than this trainer; install both together",
                    kCudaModuleFile);
    return entry();
}

#else

Result<const CudaModule*> load_module() {
    return fail(Fault::device, "this trainer was built without CUDA");
}

#endif

// Loaded once and never unloaded, which CUDA does not tolerate.
Result<const CudaModule*>& module() {
    static Result<const CudaModule*> loaded = load_module();
    return loaded;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda(const GpuShare& gpu, OperationLog* log) {
    if (!module()) return tl::unexpected(module().error());
    return (*module())->open(gpu, log);
}

Result<std::unique_ptr<Communicator>> open_nccl(Context& context, Device& device, const NcclGroup& group) {
    if (!module()) return tl::unexpected(module().error());
    return (*module())->open_nccl(context.get(), device, group);
}

std::string place_of(const Device& cuda) {
    return module() ? (*module())->place(cuda) : "";
}

Result<OpenedDevice> open_device(DeviceChoice choice, const GpuShare& gpu, int threads, OperationLog* log) {
    if (choice == DeviceChoice::cpu) return OpenedDevice{open_cpu(threads, log), std::nullopt};
    auto cuda = open_cuda(gpu, log);
    if (cuda) return OpenedDevice{std::move(*cuda), std::nullopt};
    // A GPU that cannot be profiled is no reason to profile a CPU.
    if (cuda.error().fault == Fault::usage) return tl::unexpected(cuda.error());
    if (choice == DeviceChoice::cuda)
        return fail(Fault::device, "--device=cuda is not available: {}; --device=cpu works everywhere",
                    cuda.error().message);
    return OpenedDevice{open_cpu(threads, log), fmt::format("training on the CPU: {}", cuda.error().message)};
}

}  // namespace dp::trainer
