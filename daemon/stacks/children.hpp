// SPDX-License-Identifier: Apache-2.0
//
// What a rank's task has started.
#pragma once

#include <sys/types.h>

#include <vector>

namespace dp::stacks {

// A process's children, by number; none if it is gone.
std::vector<pid_t> children_of(pid_t pid);

// All that descends from it, at most so many; first its children.
std::vector<pid_t> descendants_of(pid_t pid, size_t most);

// The process that a shell waits for, or what that waits for; itself if it does not wait.
pid_t awaited_by(pid_t pid);

}  // namespace dp::stacks
