// SPDX-License-Identifier: Apache-2.0
//
// What a process's threads are doing, in whatever language that can be read.
#pragma once

#include <chrono>

#include "stacks/stack.hpp"

namespace dp::stacks {

enum class Threads { main, all };

struct WantedStacks {
    Threads threads = Threads::main;
    // Later on only Python calls are read, which take less time.
    std::chrono::steady_clock::time_point native_until = std::chrono::steady_clock::time_point::max();
};

// Changes nothing in the process, which must be the caller's user's; its threads are stopped for some microseconds each, and only
// where that shows nowhere (thread_snapshot.hpp). Python calls, with what the innermost of them has called in other languages;
// of a program without Python all calls.
ProcessStacks read_stacks(pid_t pid, const WantedStacks& wanted);

// The same for a rank's task; if that runs no Python, of the first of its descendants that does; else, where it only waits for
// its child, of that: a shell script's program.
ProcessStacks read_stacks_of_task(pid_t task, const WantedStacks& wanted);

}  // namespace dp::stacks
