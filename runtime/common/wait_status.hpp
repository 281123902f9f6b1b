// SPDX-License-Identifier: Apache-2.0
//
// A wait status as words (waitpid(2)): "was killed by signal 9 (SIGKILL)", "exited with code 3".
#pragma once

#include <sys/wait.h>

#include <cstring>
#include <string>

namespace dp {

inline std::string signal_name(int signal) {
    const char* name = sigabbrev_np(signal);
    return "signal " + std::to_string(signal) + (name ? " (SIG" + std::string(name) + ")" : "");
}

inline std::string describe_status(int status) {
    if (WIFSIGNALED(status)) return "was killed by " + signal_name(WTERMSIG(status));
    return "exited with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace dp
