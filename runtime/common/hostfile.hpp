// SPDX-License-Identifier: Apache-2.0
//
// DP_HOSTFILE: the step's nodes and tasks for other launchers that a task may start.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dp {

inline constexpr const char* kHostfileVariable = "DP_HOSTFILE";

// How many ranks each host has, as Slurm writes it: 4 4 3 -> "4(x2),3". Pure.
std::string compress_counts(std::span<const uint32_t> counts);

// The lines of a hostfile of mpirun, DeepSpeed and Horovod, "node01 slots=4". "" if the hosts are no hostlist, the counts not what
// compress_counts writes, or they do not belong together. Pure.
std::string hostfile_of(std::string_view host_list, std::string_view ranks_per_host);

// Makes a file of these lines that lives as long as the descriptor that it returns, also through an exec; -1 where there are no lines
// or no descriptor. Nothing is left behind.
int make_hostfile(const std::string& lines);
// Its path, for as long as this process is there; "" for -1.
std::string path_of_hostfile(int hostfile);

}  // namespace dp
