// SPDX-License-Identifier: Apache-2.0
//
// How a program of the benchmarks ends when something goes wrong, also when it would hang: one line and exit
// code 1.
#pragma once

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace dp::bench {

[[noreturn]] inline void die(const std::string& what) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
    _exit(1);  // not exit: other threads may be in the middle of something
}

[[noreturn]] inline void die_of_errno(const std::string& what) {
    die(what + ": " + std::strerror(errno));
}

// For programs that wait in libraries of others.
inline void end_after(unsigned seconds) {
    signal(SIGALRM, [](int) {
        constexpr char kLine[] = "a rank of the benchmark has not finished in time\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
        _exit(1);
    });
    alarm(seconds);
}

}  // namespace dp::bench
