// SPDX-License-Identifier: Apache-2.0
//
// What a thread of a rank is doing: its calls, innermost first.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dp::stacks {

struct Frame {
    std::string function;  // UTF-8 without control characters, as the file
    std::string file;
    uint32_t line = 0;  // 0: not known

    bool operator==(const Frame&) const = default;
};

struct ThreadStack {
    pid_t thread = 0;  // 0: not known
    std::vector<Frame> frames;
    std::string incomplete;  // why there are no more; "" if these are all
    bool has_native =
        false;  // of a Python thread: calls into other languages are among them, if there are any

    bool operator==(const ThreadStack&) const = default;
};

// A process's threads, the main one first, or why they are not known.
struct ProcessStacks {
    pid_t pid = 0;
    std::vector<ThreadStack> threads;
    std::string unknown;
};

}  // namespace dp::stacks
