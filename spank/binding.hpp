// SPDX-License-Identifier: Apache-2.0
//
// A task's CPUs and memory near its tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tiles.hpp"
#include "tiles/plan.hpp"

namespace dp::plugin {

// In user_init, once for all tasks: the CPUs near each share, by local rank; empty if they are unknown.
std::vector<std::vector<uint32_t>> near_of_shares(const TileInventory& inventory,
                                                  const std::vector<Tiles>& shares);

// In task_init: binds this task to its share of the CPUs near its tiles, among those that it may use, and
// makes it prefer the memory there. If that fails, everything stays as Slurm had it, and one of the node's
// affected ranks gets a warning for the user.
std::optional<std::string> bind_near_tiles(const StepFacts& step, const NodeTiles& tiles,
                                           const TilePlan& plan, uint32_t local_rank);

// The CPUs that this process may use, ascending; empty if the kernel does not say.
std::vector<uint32_t> allowed_cpus();

}  // namespace dp::plugin
