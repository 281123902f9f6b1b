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
#include <unordered_map>
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
    std::unordered_map<std::string_view, std::string_view> values_;
};

// The node's, in user_init.
void change_environment(spank_t spank, const std::vector<EnvironmentChange>& changes);

// A task's own, in task_init.
void change_task_environment(spank_t spank, const std::vector<EnvironmentChange>& changes);

}  // namespace dp::plugin
