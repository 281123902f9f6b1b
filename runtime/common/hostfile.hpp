// SPDX-License-Identifier: Apache-2.0
//
// DP_HOSTFILE: the step's nodes and tasks for other launchers that a task may start.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dp {

// The lines of a hostfile of mpirun, DeepSpeed and Horovod, "node01 slots=4", of the first `nodes` hosts. `tasks_per_node` is Slurm's:
// "4(x2),3". "" if one of the two is not what Slurm writes, or they do not belong together. Pure.
std::string hostfile_of(std::string_view node_list, std::string_view tasks_per_node, uint32_t nodes);

// Makes a file of these lines that lives as long as this process, also through an exec, and returns its path; "" where there are no lines
// or no descriptor. Nothing is left behind.
std::string make_hostfile(const std::string& lines);

}  // namespace dp
