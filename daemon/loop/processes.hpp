// SPDX-License-Identifier: Apache-2.0
//
// Finding and signalling what belongs to the step on this node: the last resort when its ranks have to end
// and slurmstepd does not do it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace dp {

// From the text of /proc/PID/cgroup to the step's part of it: everything up to ".../step_N", or nullopt where
// the process tracker is not cgroups. Works for cgroup v1 (the first controller that has it) and v2. Pure.
std::optional<std::string> step_cgroup(std::string_view proc_cgroup);

// Sends the signal to every process of the step but this one: those in this process's step cgroup, the given
// tasks and their descendants. Returns how many were signalled. For SIGKILL, call until it returns 0:
// processes may still fork.
size_t signal_step(int signal, const std::set<pid_t>& tasks);

}  // namespace dp
