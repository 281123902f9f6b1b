// SPDX-License-Identifier: Apache-2.0
//
// From what a step owns of its node's tiles to one task's part of them: which, under which variables, and
// near which CPUs. Pure; the plugin gathers the facts and applies the plan.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "common/environment.hpp"
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
    std::string gpu_binding = {};  // SLURMD_TRES_BIND: "gpu:per_task:1", since 23.11 "gres/gpu:..."; "": none
    // How many units of the gres the step was given on a node, as far as Slurm says it. Of others than gpu
    // nobody learns which, so where they are fewer than the job's, there is no plan.
    std::optional<uint64_t> step_count = std::nullopt;
    std::vector<uint32_t> ranks = {};  // the node's, by local rank
    uint32_t local_rank = 0;
    uint32_t per_rank = 0;  // --dp-tiles; 0: auto
    bool own_only = false;  // --dp-visible=own
    // 0, or the errno with which this task would fail to open a device's file. EPERM is a device cgroup's.
    std::function<int(const std::string& file)> open_error = [](const std::string&) { return 0; };
    GetVariable get = [](const char*) { return std::nullopt; };  // the task's environment until now
};

// Number of a unit of the gres on its node, and what the step calls it.
using UnitNames = std::vector<std::pair<uint32_t, std::string>>;

// What the ranks of a node get: the same for all of them, unless Slurm has bound each task to GPUs of its own
// (`by_task`, and then `shares` is that task's alone).
struct NodeShares {
    std::vector<Tiles> shares;  // by local rank
    UnitNames names;
    bool by_task = false;
    // As in TileView; none where each rank sees its own alone.
    Tiles visible, firsts;
    // Each device that a rank must be able to open, and the first rank that has tiles of it.
    struct Device {
        uint32_t number, rank;
    };
    std::vector<Device> to_open;
};

struct TilePlan {
    Tiles own;
    bool by_task = false;  // Slurm has bound the task to them: of the other ranks' nothing is known
    std::vector<TaskVariable> variables;
};

// Whether Slurm has bound each task to GPUs of its own. Then a failure is one task's, else the node's.
bool is_bound_by_slurm(const TileFacts& facts);

// Fails where the step does not own what is asked for, where nobody can tell what it owns, and where a
// rank may not open its devices; never takes a tile that the step does not own.
Try<TilePlan> plan_tiles(const TileFacts& facts);
// The same in two steps, of which a node needs the first once.
Try<NodeShares> share_node(const TileFacts& facts);
Try<TilePlan> plan_rank(const TileFacts& facts, const NodeShares& node);
// Of plan_rank the part that only the task itself can tell. Fails where it may not open one of the devices.
Try<void> require_access(const TileInventory& inventory, const std::vector<NodeShares::Device>& devices,
                         const std::function<int(const std::string& file)>& open_error);

// The CPUs near the devices of these tiles, ascending; none where one of them is near nothing in particular.
// `cpus_of_numa` lists those of a NUMA node.
std::vector<uint32_t> cpus_near(const TileInventory& inventory, const Tiles& tiles,
                                const std::function<std::vector<uint32_t>(uint32_t)>& cpus_of_numa);

}  // namespace dp
