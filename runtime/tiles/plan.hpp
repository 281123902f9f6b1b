// SPDX-License-Identifier: Apache-2.0
//
// From what a step owns of its node's tiles to one task's part of them: which, under which variables, and
// near which CPUs. Pure; the plugin gathers the facts and applies the plan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/environment.hpp"
#include "common/result.hpp"
#include "tiles/gres.hpp"
#include "tiles/inventory.hpp"
#include "tiles/vendor.hpp"

namespace dp {

struct TileFacts {
    const TileInventory* inventory = nullptr;
    std::vector<GresUnits> given;  // of this node to the whole job
    // Of gres gpu Slurm tells each step its own: SLURM_STEP_GPUS of the node's environment, and by which
    // names (indices in its device cgroup, say) the step and this task find them: its CUDA_VISIBLE_DEVICES or
    // the like. The last two differ where Slurm binds each task to GPUs (--gpus-per-task, --gpu-bind).
    std::string step_units = {};
    std::string step_names = {};
    std::string task_names = {};
    uint32_t rank = 0;
    uint32_t local_rank = 0;
    uint32_t local_ranks = 0;
    uint32_t per_rank = 0;  // --dp-tiles; 0: auto
    bool own_only = false;  // --dp-visible=own
    // 0, or the errno with which this task would fail to open a device's file. EPERM is a device cgroup's.
    std::function<int(const std::string& file)> open_error = [](const std::string&) { return 0; };
    GetVariable get = [](const char*) { return std::nullopt; };  // the task's environment until now
};

struct TilePlan {
    Tiles own;
    // By local rank; empty where Slurm has bound each task to tiles of its own.
    std::vector<Tiles> shares;
    std::vector<TileVariable> variables;
};

// Fails where the step does not own what is asked for, where nobody can tell what it owns, and where this
// task may not open a device of its own; never takes a tile that the step does not own.
Try<TilePlan> plan_tiles(const TileFacts& facts);

// The CPUs near the devices of these tiles, ascending; none where one of them is near nothing in particular.
// `cpus_of_numa` lists those of a NUMA node.
std::vector<uint32_t> cpus_near(const TileInventory& inventory, const Tiles& tiles,
                                const std::function<std::vector<uint32_t>(uint32_t)>& cpus_of_numa);

}  // namespace dp
