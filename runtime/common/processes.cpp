// SPDX-License-Identifier: Apache-2.0
#include "common/processes.hpp"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

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

std::string step_cgroup(uint32_t job_id, uint32_t step_id) {
    return "/job_" + std::to_string(job_id) + "/step_" + std::to_string(step_id);
}

bool in_cgroup(std::string_view proc_cgroup, std::string_view cgroup) {
    if (cgroup.empty()) return false;
    for (std::string_view line : split(proc_cgroup, '\n')) {
        const size_t at = line.find(cgroup);
        if (at == std::string_view::npos) continue;
        // Compare the whole name: step_1 is not step_12.
        const std::string_view rest = line.substr(at + cgroup.size());
        // In cgroup v2, slurmstepd itself lives in ".../step_N/slurm" (cgroup_v2.c).
        if (rest.empty() || (rest[0] == '/' && rest.rfind("/slurm", 0) != 0)) return true;
    }
    return false;
}

size_t signal_step(int signal, const std::string& cgroup, const std::set<pid_t>& tasks) {
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
        if (pid == getpid() || pid <= 1) continue;
        if (!descends_from_task(pid) &&
            !in_cgroup(read_file("/proc/" + std::to_string(pid) + "/cgroup"), cgroup))
            continue;
        if (kill(pid, signal) == 0) ++signalled;
    }
    return signalled;
}

bool is_stopped(pid_t pid) {
    const std::string state = word_of_stat(pid, 0);
    return state == "T" || state == "t";
}

}  // namespace dp
