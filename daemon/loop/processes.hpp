// SPDX-License-Identifier: Apache-2.0
//
// Finding and signalling what belongs to the step on this node: the last resort when its ranks have to end
// and slurmstepd does not do it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace dp {

// The part of a process's cgroup path that only processes of this step have, in cgroup v1 and v2:
// "/job_12/step_0". Where the process tracker is not cgroups no process has it. Pure.
std::string step_cgroup(uint32_t job_id, uint32_t step_id);

// True where the text of a /proc/PID/cgroup has that part. Pure.
bool in_cgroup(std::string_view proc_cgroup, std::string_view cgroup);

// Sends the signal to every process of the step but this one: those in its cgroup ("" for none), the given
// tasks and their descendants. Returns how many were signalled.
size_t signal_step(int signal, const std::string& cgroup, const std::set<pid_t>& tasks);

// Whether the process stands still because of a signal (SIGSTOP, SIGTSTP, a debugger).
bool is_stopped(pid_t pid);

}  // namespace dp