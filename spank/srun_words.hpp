// SPDX-License-Identifier: Apache-2.0
//
// What the words of srun's command line say and Slurm does not tell its plugins: whether the program is to have a world,
// whether the user asked for a binding or Slurm chose it, and whether a step wants less than its job has.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "common/environment.hpp"

namespace dp::plugin {

// An MPI library's own launcher is not the user's program: the ranks are its children.
inline bool is_mpi_launcher(std::string_view program) {
    program.remove_prefix(program.rfind('/') + 1);  // 0 without one
    return program == "orted" || program == "prted" || program == "hydra_pmi_proxy";
}

// dpctl has no use for a world of its own, except `dpctl doctor`, which compares its nodes.
inline bool is_dpctl_without_a_world(std::string_view program, std::string_view subcommand) {
    program.remove_prefix(program.rfind('/') + 1);
    return program == "dpctl" && subcommand != "doctor";
}

// Each function below takes one word of srun's command line, in any spelling that getopt_long accepts.

template <size_t Count>
bool begins_with_one_of(std::string_view word, const std::array<std::string_view, Count>& beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [word](std::string_view beginning) { return word.starts_with(beginning); });
}

// srun's short options that may stand together behind one dash.
inline constexpr std::string_view kWithoutArgument = "EHOQVXZbhklsuv";

// --cpu-bind, --mem-bind, and their old spellings.
inline bool binds_tasks(std::string_view word) {
    return begins_with_one_of<4>(word, {"--cpu-b", "--cpu_b", "--mem-b", "--mem_b"});
}

// --no-kill, also -k after options without an argument: -lk.
inline bool asks_for_no_kill(std::string_view word) {
    if (word.starts_with("--")) return word.starts_with("--no-k") && !word.ends_with("=off");
    const size_t k = word.starts_with('-') ? word.find('k') : word.npos;
    return k != word.npos && word.find_first_not_of(kWithoutArgument, 1) > k;
}

// Gres for the step itself. It then has none of those that it does not name (_copy_job_tres_to_step of
// Slurm's slurmctld), and may get less than its job has of those that it names.
inline bool asks_for_gres(std::string_view word) {
    // -G, also after options without an argument: -lG2.
    const size_t first = word.starts_with('-') ? word.find_first_not_of(kWithoutArgument, 1) : word.npos;
    if (first != word.npos && word[first] == 'G') return true;
    return begins_with_one_of<4>(word, {"--gre", "--tres-p", "--gpus", "--ntasks-per-g"}) &&
           !word.starts_with("--gres-");
}

// The same by the variables that srun reads instead of an option.
inline bool environment_asks_for_gres(const GetVariable& get) {
    for (const char* name : {"SLURM_GRES", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET",
                             "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"})
        if (!get(name).value_or("").empty()) return true;
    // It may have only the CPUs of a task.
    return get("SLURM_TRES_PER_TASK").value_or("").find("gres") != std::string::npos;
}

}  // namespace dp::plugin
