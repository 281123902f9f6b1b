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
#include <string_view>
#include <utility>
#include <vector>

#include "common/task_environment.hpp"

namespace dp::plugin {

std::optional<std::string> environment_value(spank_t spank, const char* name);

// The whole of it at once, for who reads many; valid until the environment is changed.
class Variables {
 public:
    explicit Variables(spank_t spank);
    std::optional<std::string> operator()(const char* name) const;

 private:
    std::vector<std::pair<std::string_view, std::string_view>> values_;  // by name
};

// The node's, in user_init, or in task_init a task's own: a copy of slurmstepd's that is the task's alone.
void change_environment(spank_t spank, const std::vector<EnvironmentChange>& changes);

// Those that change_environment did not fill.
void remove_slots(spank_t spank);

}  // namespace dp::plugin
