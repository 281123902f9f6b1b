// SPDX-License-Identifier: Apache-2.0
//
// The environment that Slurm keeps for a step's tasks, read and changed through SPANK: in user_init the
// node's, which all its tasks inherit; in task_init one task's own copy.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include "common/environment_list.hpp"

namespace dp::plugin {

// In slurmstepd this is Slurm's own list, not a copy; null if there is none.
inline char** raw_environment(spank_t spank) {
    char** environment = nullptr;
    return spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS ? environment : nullptr;
}

// All of it at once, for callers that read many variables.
inline EnvironmentList environment_list(spank_t spank) {
    return EnvironmentList(raw_environment(spank));
}

// Writes into the list what has room there; Slurm sets the rest. The list is invalid afterwards.
inline void change_environment(spank_t spank, EnvironmentList list,
                               const std::vector<EnvironmentChange>& changes) {
    std::vector<const EnvironmentChange*> left;
    for (const auto& change : changes)
        if (!list.write(change)) left.push_back(&change);
    // From here on, Slurm moves the memory that `list` points to.
    for (const EnvironmentChange* change : left) {
        if (change->value)
            spank_setenv(spank, change->name.c_str(), change->value->c_str(), 1);
        else
            spank_unsetenv(spank, change->name.c_str());
    }
}

// Removes the slots that no change has filled.
inline void remove_slots(spank_t spank) {
    for (const auto& name : slots_of(raw_environment(spank))) spank_unsetenv(spank, name.c_str());
}

}  // namespace dp::plugin
