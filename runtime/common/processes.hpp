// SPDX-License-Identifier: Apache-2.0
//
// Finds and signals the step's processes on this node: the last resort if slurmstepd does not end its ranks.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <set>
#include <vector>

#include "common/control.hpp"

namespace dp {

// A step's cgroups, as lines of /proc/PID/cgroup name them: a controller and a path, in cgroup v2 one.
using Cgroups = std::set<std::string, std::less<>>;

// The step's cgroups, from the /proc/PID/cgroup of one of its processes; none if the process tracker does not
// use cgroups. Where its job is in the path depends on Slurm's version, so that is not looked at. Pure.
Cgroups cgroups_of_step(std::string_view proc_cgroup);

// Whether the process with this /proc/PID/cgroup belongs to the step. Pure.
bool in_cgroups(std::string_view proc_cgroup, const Cgroups& step);

// Sends the signal to every process of the step except this one: those in its cgroups, the given tasks and
// their descendants. Returns how many were signalled.
size_t signal_step(int signal, const Cgroups& step, const std::set<pid_t>& tasks);

// Whether a signal has stopped the process (SIGSTOP, SIGTSTP, a debugger).
bool is_stopped(pid_t pid);

// The processes of a node's ranks, as forked by the launcher.
class Tasks {
 public:
    // `step`: none without Slurm.
    Tasks(size_t ranks, Cgroups step) : by_local_rank_(ranks, 0), step_(std::move(step)) {}

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
        if (signal_step(number, step_, running_) > 0 && number == SIGKILL)
            signal_step(number, step_, running_);
    }

 private:
    std::vector<pid_t> by_local_rank_;
    std::set<pid_t> running_;
    Cgroups step_;
};

}  // namespace dp
