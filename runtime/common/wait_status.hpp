// SPDX-License-Identifier: Apache-2.0
//
// A wait status (waitpid(2)) as text: "was killed by signal 9 (SIGKILL)", "exited with code 3".
#pragma once

#include <sys/wait.h>

#include <cstring>
#include <string>

namespace dp {

inline std::string describe_status(int status) {
    if (WIFSIGNALED(status)) {
        const int sig = WTERMSIG(status);
        const char* name = sigabbrev_np(sig);
        return "was killed by signal " + std::to_string(sig) +
               (name ? " (SIG" + std::string(name) + ")" : "");
    }
    return "exited with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace dp
