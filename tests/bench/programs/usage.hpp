// SPDX-License-Identifier: Apache-2.0
//
// What a process has used so far. By its CPU clock, which counts nanoseconds where /proc counts hundredths of
// seconds; and by smaps_rollup, which is exact where VmRSS lags behind. The most that it ever had is VmHWM.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace dp::bench {

struct Usage {
    double cpu_ms = 0;
    long rss_kib = 0;
    long peak_kib = 0;
};

// A number of KiB in a file of /proc.
inline long kib_of(pid_t pid, const char* file, const std::string& name) {
    std::ifstream text("/proc/" + std::to_string(pid) + "/" + file);
    for (std::string line; std::getline(text, line);)
        if (line.starts_with(name)) return std::atol(line.c_str() + name.size());
    return 0;
}

inline Usage usage_of(pid_t pid) {
    Usage usage;
    clockid_t clock{};
    timespec used{};
    if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0)
        usage.cpu_ms = static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
    usage.rss_kib = kib_of(pid, "smaps_rollup", "Rss:");
    usage.peak_kib = kib_of(pid, "status", "VmHWM:");
    return usage;
}

}  // namespace dp::bench
