// SPDX-License-Identifier: Apache-2.0
//
// The environment that Slurm keeps for a step's tasks, read and changed through SPANK: in user_init the
// node's, from which all its tasks inherit, in task_init one task's own.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <optional>
#include <string>
#include <vector>

#include "common/task_environment.hpp"

namespace dp::plugin {

std::optional<std::string> environment_value(spank_t spank, const char* name);

// The node's, in user_init.
void change_environment(spank_t spank, const std::vector<EnvironmentChange>& changes);

// A task's own, in task_init.
void change_task_environment(spank_t spank, const std::vector<EnvironmentChange>& changes);

}  // namespace dp::plugin
