// SPDX-License-Identifier: Apache-2.0
//
// DP_HOSTFILE: the step's nodes and tasks for other launchers that a task may start.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dp {

inline constexpr const char* kHostfileVariable = "DP_HOSTFILE";

// The lines of a hostfile of mpirun, DeepSpeed and Horovod, "node01 slots=4", of the first `nodes` hosts. `tasks_per_node` is Slurm's:
// "4(x2),3". "" if one of the two is not what Slurm writes, or they do not belong together. Pure.
std::string hostfile_of(std::string_view node_list, std::string_view tasks_per_node, uint32_t nodes);

// Makes a file of these lines that lives as long as the descriptor that it returns, also through an exec; -1 where there are no lines
// or no descriptor. Nothing is left behind.
int make_hostfile(const std::string& lines);
// Its path, for as long as this process is there; "" for -1.
std::string path_of_hostfile(int hostfile);

}  // namespace dp
