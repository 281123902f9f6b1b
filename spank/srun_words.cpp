// SPDX-License-Identifier: Apache-2.0
#include "srun_words.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace dp::plugin {
namespace {

bool begins_with_one_of(std::string_view word, std::span<const std::string_view> beginnings) {
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [word](std::string_view beginning) { return word.starts_with(beginning); });
}

// -G, also after options without an argument: -lG2.
bool is_short_gpus(std::string_view word) {
    constexpr std::string_view kWithoutArgument = "EHOQVXZbhklsuv";
    if (!word.starts_with('-')) return false;
    const size_t first = word.find_first_not_of(kWithoutArgument, 1);
    return first != std::string_view::npos && word[first] == 'G';
}

}  // namespace

bool binds_tasks(std::string_view word) {
    constexpr std::array<std::string_view, 4> kOptions = {"--cpu-b", "--cpu_b", "--mem-b", "--mem_b"};
    return begins_with_one_of(word, kOptions);
}

bool asks_for_gres(std::string_view word) {
    constexpr std::array<std::string_view, 4> kOptions = {"--gre", "--tres-p", "--gpus", "--ntasks-per-g"};
    return (begins_with_one_of(word, kOptions) && !word.starts_with("--gres-")) || is_short_gpus(word);
}

bool asks_for_gres(std::string_view variable, std::string_view value) {
    // It may have only the CPUs of a task.
    if (variable == "SLURM_TRES_PER_TASK") return value.find("gres") != std::string_view::npos;
    constexpr std::array<std::string_view, 6> kVariables = {"SLURM_GRES",          "SLURM_GPUS",
                                                            "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET",
                                                            "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"};
    return !value.empty() && std::find(kVariables.begin(), kVariables.end(), variable) != kVariables.end();
}

}  // namespace dp::plugin
