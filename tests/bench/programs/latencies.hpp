// SPDX-License-Identifier: Apache-2.0
//
// What every program of the benchmarks reports: for each rank the time from the common start to its answer.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace dp::bench {

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One line of JSON: p50, p99 and max of the ranks, in ms, and what else the caller adds (", \"key\": 1").
inline void print_round(std::vector<double> ms, const std::string& more = "") {
    std::sort(ms.begin(), ms.end());
    auto share = [&](double part) {
        return ms[std::min(ms.size() - 1, static_cast<size_t>(part * static_cast<double>(ms.size())))];
    };
    std::printf("{\"ranks\": %zu, \"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f%s}\n", ms.size(), share(0.5),
                share(0.99), ms.back(), more.c_str());
    std::fflush(stdout);
}

// As many open files as this process may have.
inline void raise_file_limit() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace dp::bench
