// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime of the emulated GPU: what the trainer calls of it, but for streams and events (streams.cpp). Device memory ends where a page ends that nobody may touch, and holds NaNs until it is
// written: a kernel that reads or writes beyond it ends the program, and one that reads what was never
// written computes nonsense.
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "activity.hpp"
#include "blocks.hpp"
#include "shadow.hpp"

namespace dp::cuda_emulator {
namespace {

constexpr std::size_t kMemory = std::size_t{4} << 30, kAlignment = 16;
constexpr std::size_t kFilled = std::size_t{1} << 20;
constexpr int kFresh = 0xFF;  // NaN in f32 and in bf16

struct Allocation {
    char *pages,
        *end;  // all that was mapped; the end of the memory, up to which kFresh follows what was asked for
    std::size_t mapped, asked;
};

std::mutex memory_mutex;
std::map<void*, Allocation> memory;
std::size_t allocated = 0;
thread_local cudaError_t last = cudaSuccess;

std::string gpu() {
    const char* said = std::getenv("DP_CUDA_EMULATOR_GPU");
    return said == nullptr ? "9.0" : said;
}

std::size_t rounded(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

cudaError_t noted(cudaError_t result) {
    note(result);
    return result;
}

}  // namespace

void note(cudaError_t result) {
    if (result != cudaSuccess) last = result;
}

}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

extern "C" {

cudaError_t cudaMalloc(void** place, std::size_t bytes) {
    const std::lock_guard lock(memory_mutex);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (bytes > kMemory - allocated) return noted(cudaErrorMemoryAllocation);
    const std::size_t room = rounded(rounded(bytes, kAlignment), page), mapped = room + page;
    void* pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return noted(cudaErrorMemoryAllocation);
    char *const first = static_cast<char*>(pages), *const end = first + room;
    mprotect(end, page, PROT_NONE);
    *place = end - rounded(bytes, kAlignment);
    // Of much memory, both ends: each page that is written takes its time.
    const std::size_t filled = std::min(rounded(bytes, kAlignment), kFilled);
    std::memset(*place, kFresh, filled);
    std::memset(end - filled, kFresh, filled);
    memory[*place] = {first, end, mapped, bytes};
    watch_allocation(*place, bytes, pages, mapped);
    allocated += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void* place) {
    if (place == nullptr) return cudaSuccess;
    const std::lock_guard lock(memory_mutex);
    const auto found = memory.find(place);
    if (found == memory.end()) return noted(cudaErrorInvalidValue);
    const Allocation allocation = found->second;
    for (const char* byte = static_cast<char*>(place) + allocation.asked; byte < allocation.end; ++byte) {
        if (static_cast<unsigned char>(*byte) == kFresh) continue;
        std::fprintf(stderr, "emulated GPU: something was written behind memory of %zu bytes\n",
                     allocation.asked);
        std::abort();
    }
    forget_allocation(place);
    munmap(allocation.pages, allocation.mapped);
    allocated -= allocation.asked;
    memory.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const std::lock_guard lock(memory_mutex);
    *total = kMemory;
    *free = kMemory - allocated;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
    const Doing doing(Did::copy, stream);
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    const Doing doing(Did::clear, stream);
    std::memset(to, value, bytes);
    return cudaSuccess;
}

// DP_CUDA_EMULATOR_GPU: its compute capability, such as "7.0", or "none".
cudaError_t cudaGetDeviceCount(int* count) {
    *count = gpu() == "none" ? 0 : 1;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "emulated GPU");
    std::sscanf(gpu().c_str(), "%d.%d", &properties->major, &properties->minor);
    properties->multiProcessorCount = 2;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
// Nothing of the driver: a part of the emulated GPU is all of it.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    *function = nullptr;
    if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    const cudaError_t result = last;
    last = cudaSuccess;
    return result;
}
const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorInvalidConfiguration ? "invalid configuration argument" : "an error";
}
}
