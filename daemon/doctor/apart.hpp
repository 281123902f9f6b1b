// SPDX-License-Identifier: Apache-2.0
//
// Work that may hang (a resolver, a dead file system, another program), done in a process of its own with a deadline.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/failure.hpp"

namespace dp::doctor {

// What the function returns; fails if that takes too long. Only for a program with one thread.
Try<std::string> apart(const std::function<std::string()>& work, std::chrono::milliseconds patience);

struct CommandOutput {
    int exit_code = 0;  // 128 + the signal that ended it
    std::string text;   // standard output and standard error, the first MiB
};
// Runs a program, found in PATH, with an empty standard input. Fails if it cannot be started or takes too long.
Try<CommandOutput> output_of(const std::vector<std::string>& command, std::chrono::milliseconds patience);

}  // namespace dp::doctor
