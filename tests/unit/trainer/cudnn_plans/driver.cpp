// SPDX-License-Identifier: Apache-2.0
//
// Stands for NVIDIA's driver (libcuda.so.1) where there is none, for cuDNN alone: its engines look these functions up before they
// compile a kernel, and give the compiled one to the driver. Here it is taken if it is a cubin, and never run; every other function
// answers like the toolkit's stub of the driver.
#include <cstddef>
#include <cstring>

namespace {
constexpr int kSuccess = 0, kInvalidImage = 200, kStub = 34;
}

extern "C" {

int cuLibraryLoadData(const void** library, const void* code, void*, void*, unsigned, void*, void*,
                      unsigned) {
    *library = code;
    return std::memcmp(code, "\177ELF", 4) == 0 ? kSuccess : kInvalidImage;
}
int cuLibraryGetKernel(const void** kernel, const void* library, const char*) {
    *kernel = library;
    return kSuccess;
}
int cuLibraryUnload(const void*) {
    return kSuccess;
}
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return kSuccess;
}
int cuGetErrorString(int, const char** text) {
    *text = "an error of no driver";
    return kSuccess;
}
int cuGetErrorName(int, const char** text) {
    *text = "CUDA_ERROR_STUB_LIBRARY";
    return kSuccess;
}

#define DP_REFUSES(name) \
    int name() {         \
        return kStub;    \
    }
DP_REFUSES(cuInit)
DP_REFUSES(cuCtxGetCurrent)
DP_REFUSES(cuCtxGetDevice)
DP_REFUSES(cuCtxGetLimit)
DP_REFUSES(cuCtxPopCurrent)
DP_REFUSES(cuCtxPushCurrent)
DP_REFUSES(cuDeviceGet)
DP_REFUSES(cuDeviceGetAttribute)
DP_REFUSES(cuDeviceGetCount)
DP_REFUSES(cuDevicePrimaryCtxRelease)
DP_REFUSES(cuDevicePrimaryCtxReset)
DP_REFUSES(cuDevicePrimaryCtxRetain)
DP_REFUSES(cuFuncGetAttribute)
DP_REFUSES(cuFuncSetAttribute)
DP_REFUSES(cuKernelGetAttribute)
DP_REFUSES(cuKernelSetAttribute)
DP_REFUSES(cuLaunchCooperativeKernel)
DP_REFUSES(cuLaunchKernel)
DP_REFUSES(cuLaunchKernelEx)
DP_REFUSES(cuLibraryLoadFromFile)
DP_REFUSES(cuLinkAddData)
DP_REFUSES(cuLinkAddData_v2)
DP_REFUSES(cuLinkAddFile_v2)
DP_REFUSES(cuLinkComplete)
DP_REFUSES(cuLinkCreate)
DP_REFUSES(cuLinkCreate_v2)
DP_REFUSES(cuLinkDestroy)
DP_REFUSES(cuMemcpyDtoH_v2)
DP_REFUSES(cuModuleGetFunction)
DP_REFUSES(cuModuleGetGlobal_v2)
DP_REFUSES(cuModuleLoadData)
DP_REFUSES(cuModuleLoadDataEx)
DP_REFUSES(cuModuleLoadFatBinary)
DP_REFUSES(cuModuleUnload)
DP_REFUSES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
DP_REFUSES(cuOccupancyMaxPotentialClusterSize)
DP_REFUSES(cuStreamGetCtx)
DP_REFUSES(cuStreamSynchronize)
DP_REFUSES(cuTensorMapEncodeTiled)
}
