// SPDX-License-Identifier: Apache-2.0
//
// The keeper of a rank (--dp-on-failure=restart): the process that a launcher has made for the rank stays where it
// is and forks the rank's process, once for each generation. Launchers see only the keeper. It passes signals
// on, tells its node's daemon how the rank ended (control.hpp), and waits for the daemon's word, one packet:
//
//   the plan of the next generation (write_plan): begin another life with it, if the plan has a rank for this task
//   "end": there is no other life
//
// In the end it dies as its last rank did. If the keeper is killed, so is its rank. If the daemon is gone, the keeper
// kills its rank, which may begin on another node, and there is no other life. The rank's process is the leader of
// a process group of its own, unless it reads from a terminal. Used by the plugin (task_init) and by `dpctl launch`.
#pragma once

#include <string>

#include "common/plan_file.hpp"

namespace dp {

// Becomes the keeper of the node's task number `local_rank`. Returns, as fork(2) does, in a child, once for each
// generation in which the task has a rank, with that generation's plan (`first` in the first). Returns in the caller
// only if it fails before the first life. `socket_name`: the ranks' (NodeSetup), with '@' in front. The caller has
// one thread.
Try<NodePlan> keep(const std::string& socket_name, uint32_t local_rank, const NodePlan& first);

// The daemon's word that there is no other life.
inline constexpr std::string_view kNoOtherLife = "end";

}  // namespace dp
