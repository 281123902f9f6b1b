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
#include <vector>

#include "blocks.hpp"
#include "graphs.hpp"
#include "queues.hpp"
#include "shadow.hpp"
#include "streams.hpp"

namespace dp::cuda_emulator {
namespace {

constexpr std::size_t kAlignment = 16;
constexpr std::size_t kFilled = std::size_t{1} << 20;
constexpr int kFresh = 0xFF;  // NaN in f32 and in bf16

struct Allocation {
    char *pages,
        *end;  // all that was mapped; the end of the memory, up to which kFresh follows what was asked for
    std::size_t mapped, asked;
    // What was handed out of it: kFresh follows up to the end, too.
    char* part_end;
    std::size_t part_bytes;
};

std::mutex memory_mutex;
std::map<void*, Allocation> memory;
std::size_t allocated = 0;  // with CUDA's own
std::size_t most_allocated = 0;
thread_local cudaError_t last = cudaSuccess;

std::string setting(const char* name, const char* without) {
    const char* said = std::getenv(name);
    return said == nullptr ? without : said;
}

// What DP_CUDA_EMULATOR_GPU says of it: its compute capability, such as "7.0", or a word of the functions below.
std::string gpu() {
    return setting("DP_CUDA_EMULATOR_GPU", "9.0");
}

// DP_CUDA_EMULATOR_MEMORY_MIB, of which CUDA itself has DP_CUDA_EMULATOR_CONTEXT_MIB. With DP_CUDA_EMULATOR_MEMORY_TOLD the process says at
// its end how much was in use at most, its context included.
std::size_t size_of_memory() {
    static const std::size_t bytes = std::stoull(setting("DP_CUDA_EMULATOR_MEMORY_MIB", "4096")) << 20;
    return bytes;
}

// Of a block (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
std::size_t most_shared() {
    const std::string capability = gpu();
    if (capability == "8.0") return std::size_t{163} << 10;
    return capability.starts_with("8.") || capability.starts_with("12.") ? std::size_t{99} << 10
                                                                         : kMostShared;
}

// With the memory's mutex. The first call of a process makes the context.
void make_context() {
    static const bool is_made = [] {
        allocated += std::stoull(setting("DP_CUDA_EMULATOR_CONTEXT_MIB", "0")) << 20;
        if (std::getenv("DP_CUDA_EMULATOR_MEMORY_TOLD") != nullptr)
            std::atexit([] {
                std::fprintf(stderr, "emulated GPU: %zu bytes of memory were in use at most\n",
                             most_allocated);
            });
        return true;
    }();
    (void)is_made;
}

std::size_t rounded(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

cudaError_t noted(cudaError_t result) {
    note(result);
    return result;
}

// By the host; a stream that is captured has none.
cudaError_t refuse_to_copy(cudaMemcpyKind kind, cudaStream_t stream) {
    return kind == cudaMemcpyDeviceToDevice ? cudaSuccess : refuse_on(stream);
}

// Of much memory, both ends: each page that is written takes its time.
void fill(char* begin, char* end) {
    const std::size_t filled = std::min(static_cast<std::size_t>(end - begin), kFilled);
    std::memset(begin, kFresh, filled);
    std::memset(end - filled, kFresh, filled);
}

void check_fresh(const char* begin, const char* end, const char* behind, std::size_t bytes) {
    if (std::all_of(begin, end, [](char byte) { return static_cast<unsigned char>(byte) == kFresh; })) return;
    std::fprintf(stderr, "emulated GPU: something was written behind %s of %zu bytes\n", behind, bytes);
    std::abort();
}
void check_part(const Allocation& allocation) {
    check_fresh(allocation.part_end, allocation.end, "a part", allocation.part_bytes);
}

}  // namespace

void note(cudaError_t result) {
    if (result != cudaSuccess) last = result;
}

std::uintptr_t place_in_allocation(const void* place) {
    const std::lock_guard lock(memory_mutex);
    const auto address = reinterpret_cast<std::uintptr_t>(place);
    const auto after = memory.upper_bound(const_cast<void*>(place));
    if (after == memory.begin()) return address;
    const auto& [begin, found] = *std::prev(after);
    return place < found.end ? address - reinterpret_cast<std::uintptr_t>(begin) : address;
}

void* hand_out(void* whole, std::size_t bytes) {
    const std::lock_guard lock(memory_mutex);
    const auto found = memory.find(whole);
    if (found == memory.end()) return whole;
    Allocation& allocation = found->second;
    char* const part = static_cast<char*>(whole) + (allocation.asked - bytes) / kAlignment * kAlignment;
    if (are_late()) return part;
    if (has_captured()) {  // what was called before may still write to its part
        allocation.part_end = allocation.end;
        watch_part(whole, whole, allocation.asked);
        return part;
    }
    check_part(allocation);
    fill(part, allocation.end);
    allocation.part_end = part + bytes;
    allocation.part_bytes = bytes;
    watch_part(whole, part, bytes);
    return part;
}

}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

extern "C" {

cudaError_t cudaMalloc(void** place, std::size_t bytes) {
    if (const cudaError_t refused = refuse_in_thread(); refused != cudaSuccess) return refused;
    const std::lock_guard lock(memory_mutex);
    make_context();
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (allocated > size_of_memory() || bytes > size_of_memory() - allocated)
        return noted(cudaErrorMemoryAllocation);
    const std::size_t room = rounded(rounded(bytes, kAlignment), page), mapped = room + page;
    void* pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return noted(cudaErrorMemoryAllocation);
    char *const first = static_cast<char*>(pages), *const end = first + room;
    mprotect(end, page, PROT_NONE);
    *place = end - rounded(bytes, kAlignment);
    fill(static_cast<char*>(*place), end);
    memory[*place] = {first, end, mapped, bytes, end, 0};
    watch_allocation(*place, bytes, pages, mapped);
    allocated += bytes;
    most_allocated = std::max(most_allocated, allocated);
    return cudaSuccess;
}

cudaError_t cudaFree(void* place) {
    if (place == nullptr) return cudaSuccess;
    if (const cudaError_t refused = refuse_in_thread(); refused != cudaSuccess) return refused;
    do_copies();
    wait_for_late();
    const std::lock_guard lock(memory_mutex);
    const auto found = memory.find(place);
    if (found == memory.end()) return noted(cudaErrorInvalidValue);
    const Allocation allocation = found->second;
    check_fresh(static_cast<char*>(place) + allocation.asked, allocation.end, "memory", allocation.asked);
    check_part(allocation);
    forget_allocation(place);
    munmap(allocation.pages, allocation.mapped);
    allocated -= allocation.asked;
    memory.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const std::lock_guard lock(memory_mutex);
    make_context();
    *total = size_of_memory();
    *free = *total - std::min(allocated, *total);
    return cudaSuccess;
}

// From the host only when the stream is used again: nothing promises more (API synchronization behavior, CUDA runtime's manual:
// from pageable memory it might be staged first).
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (const cudaError_t refused = refuse_to_copy(kind, stream); refused != cudaSuccess) return refused;
    const auto copy = [=] { std::memcpy(to, from, bytes); };
    if (kind == cudaMemcpyDeviceToDevice) {
        return queue(Did::copy, stream, {"a copy"}, {{from, bytes, false}, {to, bytes, true}}, copy);
    } else if (kind == cudaMemcpyDeviceToHost) {
        const bool returns_at_once = are_late() && is_pinned(to);
        if (returns_at_once) std::memset(to, kFresh, bytes);
        queue(Did::copy, stream, {"a copy to the host"}, {{from, bytes, false}, {to, bytes, true}}, copy);
        if (are_late() && !returns_at_once) {
            wait_for(stream);
            order_host(stream);
        }
    } else if (!are_late()) {
        queue(Did::copy, stream, {"a copy"}, {}, [=] { copy_later(to, from, bytes); });
    } else {
        const auto* const first = static_cast<const char*>(from);
        const auto checked = [copy, first, queued = std::vector<char>(first, first + bytes)] {
            if (std::memcmp(first, queued.data(), queued.size()) != 0) {
                std::fprintf(
                    stderr,
                    "emulated GPU: the host has changed memory that is still to be copied to the GPU\n");
                std::abort();
            }
            copy();
        };
        queue(Did::copy, stream, {"a copy from the host"}, {{from, bytes, false}, {to, bytes, true}},
              checked);
    }
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return queue(Did::clear, stream, {"what clears memory"}, {{to, bytes, true}},
                 [=] { std::memset(to, value, bytes); });
}

// With DP_CUDA_EMULATOR_PINNED=BYTES no more is locked at a time, as where RLIMIT_MEMLOCK says so.
cudaError_t cudaHostAlloc(void** place, std::size_t bytes, unsigned) {
    if (const cudaError_t refused = refuse_in_thread(); refused != cudaSuccess) return refused;
    const char* most = std::getenv("DP_CUDA_EMULATOR_PINNED");
    if (most != nullptr && bytes > std::strtoull(most, nullptr, 10)) return noted(cudaErrorMemoryAllocation);
    *place = std::malloc(bytes);
    if (*place != nullptr) note_pinned(*place, bytes);
    return *place == nullptr ? noted(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* place) {
    if (const cudaError_t refused = refuse_in_thread(); refused != cudaSuccess) return refused;
    do_copies();
    wait_for_late();
    forget_pinned(place);
    std::free(place);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    if (gpu() == "none") return noted(cudaErrorNoDevice);
    if (gpu() == "old-driver" || gpu() == "no-driver") return noted(cudaErrorInsufficientDriver);
    if (gpu() == "lost") return noted(cudaErrorUnknown);
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
    return gpu() == "taken" ? noted(cudaErrorDevicesUnavailable) : cudaSuccess;
}
// DP_CUDA_EMULATOR_PCI: the address; without it, each process has a GPU of its own.
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int) {
    std::snprintf(address, static_cast<std::size_t>(size), "%s",
                  setting("DP_CUDA_EMULATOR_PCI", ("emulated:" + std::to_string(getpid())).c_str()).c_str());
    return cudaSuccess;
}
// DP_CUDA_EMULATOR_NAME.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    std::strncpy(properties->name, setting("DP_CUDA_EMULATOR_NAME", "emulated GPU").c_str(),
                 sizeof properties->name - 1);
    std::sscanf(gpu().c_str(), "%d.%d", &properties->major, &properties->minor);
    properties->multiProcessorCount = 2;
    properties->sharedMemPerBlockOptin = most_shared();
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<std::size_t>(value) > most_shared())
        return noted(cudaErrorInvalidValue);
    allow_launched(function, static_cast<std::size_t>(value));
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = gpu() == "old-driver" ? 12040 : gpu() == "no-driver" ? 0 : CUDART_VERSION;
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
