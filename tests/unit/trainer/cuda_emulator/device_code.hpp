// SPDX-License-Identifier: Apache-2.0
//
// CUDA's language, as far as the trainer's kernels speak it, for a C++ compiler: included in front of each of
// their files (-include) in the place of what nvcc knows by itself. What a function does is said in the CUDA
// C++ Programming Guide under its name. A kernel that uses one that is missing here does not compile: add it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "blocks.hpp"
#include "graphs.hpp"
#include "queues.hpp"
#include "shadow.hpp"

// Compiled with -fsanitize=thread, each access of a kernel calls the shadow (shadow.hpp), but for what stands for hardware here.
#ifdef __SANITIZE_THREAD__
#define DP_IS_WATCHED true
#define DP_UNWATCHED __attribute__((no_sanitize("thread")))
// No static shared variable is larger than 48 KiB, nor launched memory (launched_memory.cuh) than 227, so that there is a gap behind each.
#define DP_APART __attribute__((aligned(65536)))
#else
#define DP_IS_WATCHED false
#define DP_UNWATCHED
#define DP_APART
#endif

// Shared variables are those of the block that goes on (poison.hpp). As thread-locals, they are apart from others (shared_memory.hpp).
// Of the functions that have any, those that a kernel runs are known by a mark beside them.
#undef __shared__
#define __shared__ DP_MARK_SHARED(__LINE__) static thread_local DP_APART
#define DP_MARK_SHARED(line) DP_MARK_SHARED_OF(line)
#define DP_MARK_SHARED_OF(line)                        \
    static thread_local char dp_shared_of_line_##line; \
    ::dp::cuda_emulator::note_shared(&dp_shared_of_line_##line);
#undef __launch_bounds__
#define __launch_bounds__(...)

#define cudaLaunchKernelEx ::dp::cuda_emulator::launch_kernel

namespace dp::cuda_emulator {

inline constinit thread_local char beside_shared = 0;

// What is known of the memory that a kernel uses: of a pointer, that it begins there, and whether it is written; of pointers in
// structures, that it is read.
template <typename Argument>
void add_ranges(const Argument& argument, std::vector<Range>& ranges) {
    if constexpr (std::is_pointer_v<Argument>) {
        if (argument != nullptr)
            ranges.push_back({argument, 1, !std::is_const_v<std::remove_pointer_t<Argument>>});
    } else if constexpr (std::is_class_v<Argument>) {
        for (std::size_t at = 0; at + sizeof(void*) <= sizeof argument; at += sizeof(void*)) {
            const void* word = nullptr;
            std::memcpy(&word, reinterpret_cast<const char*>(&argument) + at, sizeof word);
            if (word != nullptr) ranges.push_back({word, 1, false});
        }
    }
}

template <typename... Parameters>
DP_UNWATCHED cudaError_t make_node(dim3 blocks, dim3 threads, std::size_t launched,
                                   void (*kernel)(Parameters...), GraphNode& node, Parameters... arguments) {
    const auto* function = reinterpret_cast<const void*>(kernel);
    const cudaError_t result = limits(blocks, threads, function, launched);
    if (result != cudaSuccess) return result;
    std::vector<Range> ranges;
    if (are_late()) (add_ranges(arguments, ranges), ...);
    const auto work = [=] {
        const auto call = [&]() DP_UNWATCHED { kernel(arguments...); };
        constexpr auto kBody = [](const void* what)
                                   DP_UNWATCHED { (*static_cast<const decltype(call)*>(what))(); };
        run(blocks, threads, {kBody, &call, function, &beside_shared, DP_IS_WATCHED, launched});
    };
    constexpr auto kRebinding = [](const cudaKernelNodeParams& to, GraphNode& again) {
        return [&]<std::size_t... kAll>(std::index_sequence<kAll...>) {
            return make_node(to.gridDim, to.blockDim, to.sharedMemBytes,
                             reinterpret_cast<void (*)(Parameters...)>(to.func), again,
                             *static_cast<const Parameters*>(to.kernelParams[kAll])...);
        }
        (std::index_sequence_for<Parameters...>());
    };
    node = {Did::kernel, {"kernel", function}, std::move(ranges), work, kRebinding};
    return cudaSuccess;
}
template <typename... Parameters>
DP_UNWATCHED cudaError_t launch_kernel(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                                       std::type_identity_t<Parameters>... arguments) {
    GraphNode node;
    const cudaError_t result = make_node<Parameters...>(config->gridDim, config->blockDim,
                                                        config->dynamicSmemBytes, kernel, node, arguments...);
    note(result);
    return result == cudaSuccess ? queue(config->stream, node) : result;
}

// The value of lane `from`, in each lane.
template <typename T>
DP_UNWATCHED T value_of(int from, T value, unsigned mask, Place place) {
    std::uint64_t words[kWords] = {};
    static_assert(sizeof value <= sizeof words[0]);
    std::memcpy(words, &value, sizeof value);
    std::memcpy(&value, exchange(words, mask, place).of[from], sizeof value);
    return value;
}

// Before an atomic works on it: only one thread runs at a time. `code`: that calls the atomic.
inline void begin_atomic([[maybe_unused]] const int* at, [[maybe_unused]] const void* code) {
    yield();
    if constexpr (DP_IS_WATCHED) watch_atomic(at, sizeof *at, code);
}

}  // namespace dp::cuda_emulator

inline void __syncthreads(dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    dp::cuda_emulator::wait_for_block(false, place);
}
inline int __syncthreads_or(int predicate,
                            dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    return dp::cuda_emulator::wait_for_block(predicate != 0, place);
}
inline void __syncwarp(unsigned mask = dp::cuda_emulator::kAllLanes,
                       dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    dp::cuda_emulator::exchange({}, mask, place);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int from,
              dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    return dp::cuda_emulator::value_of(from % 32, value, mask, place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int other,
                  dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    return dp::cuda_emulator::value_of(dp::cuda_emulator::lane() ^ other, value, mask, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int by,
                   dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    const int lane = dp::cuda_emulator::lane();
    return dp::cuda_emulator::value_of(lane + by < 32 ? lane + by : lane, value, mask, place);
}
DP_UNWATCHED inline unsigned __ballot_sync(
    unsigned mask, int predicate, dp::cuda_emulator::Place place = dp::cuda_emulator::Place::here()) {
    const auto& lanes = dp::cuda_emulator::exchange({predicate != 0}, mask, place);
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<unsigned>(lanes.of[i][0]) << i;
    return bits;
}

DP_UNWATCHED inline int atomicMin(int* at, int value) {
    dp::cuda_emulator::begin_atomic(at, __builtin_return_address(0));
    const int before = *at;
    if (value < before) *at = value;
    return before;
}
DP_UNWATCHED inline int atomicMax(int* at, int value) {
    dp::cuda_emulator::begin_atomic(at, __builtin_return_address(0));
    const int before = *at;
    if (value > before) *at = value;
    return before;
}
DP_UNWATCHED inline int atomicAdd(int* at, int value) {
    dp::cuda_emulator::begin_atomic(at, __builtin_return_address(0));
    const int before = *at;
    *at = before + value;
    return before;
}
DP_UNWATCHED inline int atomicExch(int* at, int value) {
    dp::cuda_emulator::begin_atomic(at, __builtin_return_address(0));
    const int before = *at;
    *at = value;
    return before;
}
DP_UNWATCHED inline int atomicCAS(int* at, int expected, int value) {
    dp::cuda_emulator::begin_atomic(at, __builtin_return_address(0));
    const int before = *at;
    if (before == expected) *at = value;
    return before;
}
// Of what a fence orders, the emulated GPU changes no order; that one is missing, the shadow sees (releases.hpp).
inline void __threadfence() {
    dp::cuda_emulator::yield();
    if constexpr (DP_IS_WATCHED) dp::cuda_emulator::watch_fence();
}
inline int __ffs(int value) {
    return __builtin_ffs(value);
}
inline int __clz(unsigned value) {
    return std::countl_zero(value);
}
inline float __uint_as_float(unsigned bits) {
    return std::bit_cast<float>(bits);
}
inline float rsqrtf(float x) {
    return 1 / std::sqrt(x);
}
inline double rsqrt(double x) {
    return 1 / std::sqrt(x);
}
using std::isfinite;
using std::max;
using std::min;
