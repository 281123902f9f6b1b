// SPDX-License-Identifier: Apache-2.0
//
// How the CPU device's loops use its threads and its vector units. The threads are OpenMP's, as oneDNN's are:
// two kinds of threads would wait for each other's cores. Without OpenMP (the sanitizers' builds) a loop runs
// on the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#else
// oneDNN brings OpenMP in any case; only GCC brings the header.
extern "C" void omp_set_num_threads(int threads);
#endif

// For functions whose loops are worth wider vectors than every x86-64 has: compiled for each kind of CPU, and
// chosen when the program starts. Their bits differ, because some of them multiply and add at once.
// optimizer_loops.cpp has those that must not differ.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DP_WIDE_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DP_WIDE_VECTORS
#endif

namespace dp::trainer::cpu {

// The number of elements that is worth waking a thread for (some microseconds).
inline constexpr std::int64_t kWorthAThread = 16 * 1024;

// Calls work(first, last) for parts of [0, count), each of at least `least` items, on the device's threads.
// The parts are the same for the same number of threads.
template <typename Work>
void for_each_part(std::int64_t count, std::int64_t least, Work work) {
#ifdef _OPENMP
    const std::int64_t parts =
        std::clamp<std::int64_t>(count / std::max<std::int64_t>(least, 1), 1, omp_get_max_threads());
    if (parts > 1) {
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
        for (std::int64_t part = 0; part < parts; ++part)
            work(count * part / parts, count * (part + 1) / parts);
        return;
    }
#endif
    (void)least;
    work(std::int64_t{0}, count);
}

// Calls work(item) for each of `count` items, on the device's threads, each of which gets `least` or more.
template <typename Work>
void for_each_item(std::int64_t count, std::int64_t least, Work work) {
    for_each_part(count, least, [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t item = first; item < last; ++item) work(item);
    });
}

// The same for items that differ in cost.
template <typename Work>
void for_each_item(std::int64_t count, Work work) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1)
#endif
    for (std::int64_t item = 0; item < count; ++item) work(item);
}

}  // namespace dp::trainer::cpu
