// SPDX-License-Identifier: Apache-2.0
//
// The common start of ranks in processes of their own, on different nodes of the local cluster: FOLDER is
// shared, and all nodes have one kernel, so locks of files and CLOCK_MONOTONIC hold for all. A rank says that
// it has come by a byte in FOLDER/arrived and then waits for FOLDER/gate, which tests/bench/start_line.py
// keeps locked until all have come. The gate holds the instant (CLOCK_MONOTONIC, ns) at which all begin: otherwise
// whoever got through first, rank 0 as a rule, would have a head start. What came of it goes to FOLDER/times.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "failing.hpp"

namespace dp::bench {

// Seconds that the ranks of a step may take until all are at the start, and from there on; see end_after.
inline constexpr unsigned kAllCome = 240;
inline constexpr unsigned kLongest = 30;

inline int64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

// One write at the end of a file that others write, too.
inline void append(const std::string& path, std::string_view text) {
    const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        die_of_errno(path);
    close(fd);
}

inline void wait_for_the_start(const std::string& folder) {
    const std::string gate = folder + "/gate";
    const int fd = open(gate.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) die_of_errno(gate);
    append(folder + "/arrived", ".");
    while (flock(fd, LOCK_SH) != 0)
        if (errno != EINTR) die_of_errno(gate);
    char text[32] = {};
    if (pread(fd, text, sizeof(text) - 1, 0) < 0) die_of_errno(gate);
    close(fd);
    const int64_t instant = std::atoll(text);
    const timespec start{instant / 1000000000, instant % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, nullptr);
}

inline unsigned slurm_rank() {
    const char* rank = std::getenv("SLURM_PROCID");
    if (!rank) die("SLURM_PROCID is not set: this is for tasks of Slurm");
    return static_cast<unsigned>(std::atoi(rank));
}

// In hexadecimal: what a rank may print, and what goes through stores of text.
inline std::string hexadecimal(std::string_view bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
    return text;
}

// Who has its id stays still for so long: writing that down, ending and being reaped would take the
// processors from the ranks that still wait for theirs. The same for all cases (id_torch.py: STILL).
inline constexpr timespec kStaysStill = {0, 500000000};

// The rank called at `begin` and had the id, here in hexadecimal, at `end`.
inline void report(const std::string& folder, int64_t begin, int64_t end, const std::string& id) {
    nanosleep(&kStaysStill, nullptr);
    append(folder + "/times", std::to_string(slurm_rank()) + " " + std::to_string(begin) + " " +
                                  std::to_string(end) + " " + id + "\n");
}

}  // namespace dp::bench
