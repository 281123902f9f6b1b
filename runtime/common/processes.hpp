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

// Sends the signal to every process of the step except this one and those to `spare`: those in its cgroups, the
// given tasks and their descendants. Returns how many were signalled; zombies are not.
size_t signal_step(int signal, const Cgroups& step, const std::set<pid_t>& tasks,
                   const std::set<pid_t>& spare = {});

// Whether a signal has stopped the process (SIGSTOP, SIGTSTP, a debugger).
bool is_stopped(pid_t pid);

// Where kernel.yama.ptrace_scope is 1 only its ancestors may read a process. Lets the daemon and the programs that it runs read this
// one, also after an exec but not its children (dpctl stacks, --dp-hang-timeout). Nothing if that process is no daemon of ours, as in
// another PID namespace, or the kernel has no yama.
void let_daemon_read_this_process(pid_t daemon);
// The same in two parts, of which the second is for the process itself: whom to let, 0 if nobody.
pid_t reader_of_ranks(pid_t daemon);
void let_read_this_process(pid_t reader);

// The processes of a node's ranks, as the launcher or, if there are keepers (keeper.hpp), those tell of them.
class Tasks {
 public:
    // `step`: none without Slurm.
    Tasks(size_t ranks, Cgroups step, bool kept)
        : launched_(ranks, 0), ranks_(ranks, 0), step_(std::move(step)), kept_(kept) {}

    void note_launcher(const ControlEvent& event) {
        note(launched_, event);
        if (!kept_) note(ranks_, event);
    }
    void note_keeper(const ControlEvent& event) { note(ranks_, event); }
    // A rank's process, or its keeper's; 0 if it has not started, or has ended.
    pid_t of(uint32_t local_rank) const { return ranks_.at(local_rank); }
    pid_t keeper_of(uint32_t local_rank) const { return launched_.at(local_rank); }
    // Helpers of the daemon's that end by themselves when the daemon does: they get no signal.
    void exempt(std::set<pid_t> helpers) { exempt_ = std::move(helpers); }

    // Signals the whole step; for SIGKILL twice, as one may have forked behind the first pass.
    void signal(int number) const {
        const std::set<pid_t> tasks = running(launched_);
        if (signal_step(number, step_, tasks, exempt_) > 0 && number == SIGKILL)
            signal_step(number, step_, tasks, exempt_);
    }
    // The keepers, too.
    void kill_all() const { signal(SIGKILL); }
    // Kills all that descends from the keepers, which orphans come back to, and returns how many there were. What
    // else is in the step (another plugin's helper, a container's file system) serves the next generation, too, as do
    // these local ranks, with all that descends from their keepers.
    size_t kill_offspring(const std::set<uint32_t>& survivors = {}) const {
        std::vector<pid_t> without = launched_;
        for (const uint32_t local_rank : survivors) without.at(local_rank) = 0;
        const std::set<pid_t> keepers = running(without);
        std::set<pid_t> spared = exempt_;
        spared.insert(keepers.begin(), keepers.end());
        return signal_step(SIGKILL, {}, keepers, spared);
    }
    // The process group of a kept rank, without a search for what has left it.
    void signal_group(uint32_t local_rank, int number) const {
        const pid_t rank = of(local_rank);
        if (rank > 1 && kill(-rank, number) != 0) kill(rank, number);
    }

 private:
    std::vector<pid_t> launched_;  // by local rank; 0 if it is not running; likewise ranks_
    std::vector<pid_t> ranks_;
    std::set<pid_t> exempt_;
    Cgroups step_;
    bool kept_;

    static void note(std::vector<pid_t>& pids, const ControlEvent& event) {
        if (event.local_rank >= pids.size()) return;
        if (event.kind == ControlEvent::Kind::task) pids[event.local_rank] = event.value;
        if (event.kind == ControlEvent::Kind::exit) pids[event.local_rank] = 0;
    }
    static std::set<pid_t> running(const std::vector<pid_t>& pids) {
        std::set<pid_t> out(pids.begin(), pids.end());
        out.erase(0);
        return out;
    }
};

}  // namespace dp
