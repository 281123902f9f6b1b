// SPDX-License-Identifier: Apache-2.0
//
// --dp-record: a rank's process tells its node's daemon what slurm-dp sets in its environment, before it becomes its program. Nobody else
// knows all of it: what the user has set stays, and that, each task sees for itself.
#pragma once

#include <span>
#include <string>

#include "common/environment_list.hpp"

namespace dp {

// The variables that are set, each as a null and NAME=VALUE; none of kLauncherVariables, of which one is the step's secret. The list of
// all for an inner step (DP_INJECTED) would only say the same again. Those that are too much for a packet (control.hpp) are left out.
std::string told_environment(std::span<const EnvironmentChange> changes);

// `socket_name`: the ranks' (NodeSetup), with '@' in front. Never waits: a daemon that is busy, or gone, misses it.
void tell_environment(const std::string& socket_name, uint32_t local_rank, uint32_t generation,
                      std::span<const EnvironmentChange> changes);

}  // namespace dp
