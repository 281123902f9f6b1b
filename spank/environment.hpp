// SPDX-License-Identifier: Apache-2.0
//
// The environment that Slurm keeps for a step's tasks, read and changed through SPANK: in user_init the
// node's, which all its tasks inherit; in task_init one task's own copy.
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

// In slurmstepd this is Slurm's own list, not a copy; null if there is none.
char** raw_environment(spank_t spank);

// All of it at once, for callers that read many variables.
EnvironmentList environment_list(spank_t spank);

// Writes into the list what has room there; Slurm sets the rest. The list is invalid afterwards.
void change_environment(spank_t spank, EnvironmentList list, const std::vector<EnvironmentChange>& changes);

// Removes the slots that no change has filled.
void remove_slots(spank_t spank);

}  // namespace dp::plugin
