// SPDX-License-Identifier: Apache-2.0
//
// The environment that Slurm keeps for a step's tasks, read and changed through SPANK: in user_init the
// node's, from which all its tasks inherit, in task_init one task's own: a copy that is the task's alone.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <optional>
#include <string>
#include <vector>

#include "common/environment_list.hpp"

namespace dp::plugin {

std::optional<std::string> environment_value(spank_t spank, const char* name);

// In slurmstepd this is Slurm's own list, no copy of it; null where there is none.
char** raw_environment(spank_t spank);

// The whole of it at once, for who reads many.
EnvironmentList environment_list(spank_t spank);

// What has room is written into the list, the rest is set by Slurm. The list is of no use after that.
void change_environment(spank_t spank, EnvironmentList list, const std::vector<EnvironmentChange>& changes);

// Those slots that no change has filled.
void remove_slots(spank_t spank);

}  // namespace dp::plugin
