// SPDX-License-Identifier: Apache-2.0
#include "common/processes.hpp"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/text.hpp"
#include "common/read_file.hpp"

namespace dp {
namespace {

std::vector<pid_t> all_processes() {
    std::vector<pid_t> pids;
    const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
    if (!proc) return pids;
    while (const dirent* entry = readdir(proc.get()))
        if (auto pid = parse_number<pid_t>(entry->d_name)) pids.push_back(*pid);
    return pids;
}

// The word of /proc/PID/stat that far behind the command's closing bracket (the command may contain ")").
std::string word_of_stat(pid_t pid, size_t place) {
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    const size_t close = stat.rfind(") ");
    if (close == std::string::npos) return "";
    const auto words = split(std::string_view(stat).substr(close + 2), ' ');
    return place < words.size() ? std::string(words[place]) : "";
}

}  // namespace

void let_daemon_read_this_process(pid_t daemon) {
    let_read_this_process(reader_of_ranks(daemon));
}

pid_t reader_of_ranks(pid_t daemon) {
    const bool is_ours =
        daemon > 1 && read_file("/proc/" + std::to_string(daemon) + "/comm") == "dp-rendezvousd\n";
    return is_ours ? daemon : 0;
}

void let_read_this_process(pid_t reader) {
    if (reader > 0) prctl(PR_SET_PTRACER, reader);
}

Cgroups cgroups_of_step(std::string_view proc_cgroup) {
    Cgroups cgroups;
    for (const std::string_view line : split(proc_cgroup, '\n'))
        if (const size_t step = line.find("/step_"); step != std::string_view::npos)
            cgroups.emplace(line.substr(0, line.find('/', step + 1)));
    return cgroups;
}

bool in_cgroups(std::string_view proc_cgroup, const Cgroups& step) {
    const auto lines = split(proc_cgroup, '\n');
    return std::any_of(lines.begin(), lines.end(), [&](const std::string_view line) {
        const size_t end = line.find('/', line.find("/step_") + 1);
        // In cgroup v2, slurmstepd itself lives in ".../step_N/slurm" (cgroup_v2.c).
        const bool is_slurms = end != std::string_view::npos && line.substr(end).starts_with("/slurm");
        return step.contains(line.substr(0, end)) && !is_slurms;
    });
}

size_t signal_step(int signal, const Cgroups& step, const std::set<pid_t>& tasks,
                   const std::set<pid_t>& spare) {
    const std::vector<pid_t> pids = all_processes();
    std::map<pid_t, pid_t> parents;
    for (pid_t pid : pids) parents[pid] = parse_number<pid_t>(word_of_stat(pid, 1)).value_or(0);

    auto descends_from_task = [&](pid_t pid) {
        for (int depth = 0; pid > 1 && depth < 256; ++depth) {
            if (tasks.contains(pid)) return true;
            auto parent = parents.find(pid);
            if (parent == parents.end()) return false;
            pid = parent->second;
        }
        return false;
    };
    size_t signalled = 0;
    for (pid_t pid : pids) {
        if (pid == getpid() || pid <= 1 || spare.contains(pid)) continue;
        if (!descends_from_task(pid) &&
            (step.empty() || !in_cgroups(read_file("/proc/" + std::to_string(pid) + "/cgroup"), step)))
            continue;
        if (word_of_stat(pid, 0) != "Z" && kill(pid, signal) == 0) ++signalled;
    }
    return signalled;
}

bool is_stopped(pid_t pid) {
    const std::string state = word_of_stat(pid, 0);
    return state == "T" || state == "t";
}

}  // namespace dp
