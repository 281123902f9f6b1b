// SPDX-License-Identifier: Apache-2.0
#include "dpctl/collect_srun.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.hpp"

namespace dp {

std::vector<std::string> squeue_command(uint32_t job) {
    return {"squeue",       "--noheader",           "--all",
            "--states=all", "--format=%A|%T|%u|%N", "--jobs=" + std::to_string(job)};
}

std::optional<SlurmJob> read_squeue(std::string_view text, uint32_t job) {
    for (const std::string_view line : split(text, '\n')) {
        const auto fields = split(line, '|');
        if (fields.size() == 4 && parse_number<uint32_t>(fields[0]) == job)
            return SlurmJob{job, std::string(fields[1]), std::string(fields[2]), std::string(fields[3])};
    }
    return std::nullopt;
}

Try<SlurmJob> job_to_ask(uint32_t job, const std::optional<SlurmJob>& known,
                         const std::optional<SlurmJob>& own, const std::string& user) {
    const std::string name = "job " + std::to_string(job);
    if (known && known->user != user)
        return fail(name + " is " + printable(known->user, 40) + "'s, who alone can start a step in it");
    if (known && known->state == "RUNNING") return *known;
    if (own && own->id != job && own->state == "RUNNING") return *own;
    const std::string state = known ? printable(known->state, 40) : "";
    if (state == "PENDING" || state == "CONFIGURING") return fail(name + " has not begun (" + state + ")");
    if (state == "SUSPENDED" || state == "STOPPED")
        return fail(name + " is suspended, and no step can run in it until it is resumed");
    const std::string nodes = known && !known->nodes.empty() ? printable(known->nodes, 80) : "NODES";
    return fail((known ? name + " is over (" + state + ")" : "Slurm does not know " + name + " (any more)") +
                "; for its records allocate its nodes again: salloc --nodelist=" + nodes +
                " dpctl collect --job " + std::to_string(job) + " ...");
}

std::vector<std::string> srun_command(const SlurmJob& job, size_t nodes,
                                      const std::vector<std::string>& program) {
    const std::string count = std::to_string(nodes);
    std::vector<std::string> words{"srun", "--quiet", "--jobid=" + std::to_string(job.id), "--overlap",
                                   "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
                                   "--cpu-bind=none", "--mpi=none", "--input=none", "--chdir=/",
                                   // One node's end is not that of the others.
                                   "--kill-on-bad-exit=0", "--wait=0", "--"};
    words.insert(words.end(), program.begin(), program.end());
    return words;
}

std::vector<std::string> environment_for_srun(const char* const* environment) {
    constexpr std::array<std::string_view, 4> kOfSlurm{"SLURM_", "SRUN_", "SPANK_", "_SLURM_"};
    constexpr std::array<std::string_view, 2> kKept{"SLURM_CONF=", "SLURM_JWT="};  // how Slurm is found
    std::vector<std::string> kept;
    for (; *environment; ++environment) {
        const std::string_view variable(*environment);
        const auto is_its_front = [&](std::string_view front) { return variable.starts_with(front); };
        if (std::ranges::any_of(kKept, is_its_front) || std::ranges::none_of(kOfSlurm, is_its_front))
            kept.emplace_back(variable);
    }
    return kept;
}

}  // namespace dp
