// SPDX-License-Identifier: Apache-2.0
//
// Finds and signals the step's processes on this node: the last resort if slurmstepd does not end its ranks.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <set>
#include <vector>

#include "common/control.hpp"

namespace dp {

// The part of a cgroup path that only this step's processes have, in cgroup v1 and v2: "/job_12/step_0". If
// the process tracker does not use cgroups, no process has it. Pure.
std::string step_cgroup(uint32_t job_id, uint32_t step_id);

// Whether the text of a /proc/PID/cgroup has that part. Pure.
bool in_cgroup(std::string_view proc_cgroup, std::string_view cgroup);

// Sends the signal to every process of the step except this one: those in its cgroup ("" for none), the given
// tasks and their descendants. Returns how many were signalled.
size_t signal_step(int signal, const std::string& cgroup, const std::set<pid_t>& tasks);

// Whether a signal has stopped the process (SIGSTOP, SIGTSTP, a debugger).
bool is_stopped(pid_t pid);

// The processes of a node's ranks, as forked by the launcher.
class Tasks {
 public:
    // `cgroup`: the step's, as step_cgroup names it; "" without Slurm.
    Tasks(size_t ranks, std::string cgroup) : by_local_rank_(ranks, 0), cgroup_(std::move(cgroup)) {}

    void note(const ControlEvent& event) {
        if (event.local_rank >= by_local_rank_.size()) return;
        pid_t& task = by_local_rank_[event.local_rank];
        if (event.kind == ControlEvent::Kind::task) running_.insert(task = event.value);
        if (event.kind == ControlEvent::Kind::exit) running_.erase(task);
    }
    // 0 if it has not started, or has ended.
    pid_t of(uint32_t local_rank) const {
        const pid_t task = by_local_rank_.at(local_rank);
        return running_.contains(task) ? task : 0;
    }
    // Signals also their descendants; for SIGKILL twice, as one may have forked behind the first pass.
    void signal(int number) const {
        if (signal_step(number, cgroup_, running_) > 0 && number == SIGKILL)
            signal_step(number, cgroup_, running_);
    }

 private:
    std::vector<pid_t> by_local_rank_;
    std::set<pid_t> running_;
    std::string cgroup_;
};

}  // namespace dp
