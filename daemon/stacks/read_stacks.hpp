// SPDX-License-Identifier: Apache-2.0
//
// What a process's threads are doing, in whatever language that can be read.
#pragma once

#include "stacks/stack.hpp"

namespace dp::stacks {

// Stops and changes nothing in the process, which must be the caller's user's.
ProcessStacks read_stacks(pid_t pid);

// The same for a rank's task; if that runs no Python, of the first of its descendants that does: a shell script's program.
ProcessStacks read_stacks_of_task(pid_t task);

}  // namespace dp::stacks
