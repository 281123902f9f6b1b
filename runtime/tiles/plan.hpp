// SPDX-License-Identifier: Apache-2.0
//
// From a step's tiles on its node to one task's part: which tiles, under which variables, near which CPUs.
// Pure; the plugin gathers the facts and applies the plan.
#pragma once

#include <functional>

#include "tiles/vendor.hpp"

namespace dp {

struct TileFacts {
    const TileInventory* inventory = nullptr;
    std::vector<GresUnits> given;  // of this node to the whole job
    // For gres gpu Slurm tells each step its units: SLURM_STEP_GPUS in the node's environment, and the names
    // (indices in its device cgroup, say) by which the step and this task find them: CUDA_VISIBLE_DEVICES or
    // the like. The last two differ if Slurm binds each task to GPUs (--gpus-per-task, --gpu-bind).
    std::string step_units = {};
    std::string step_names = {};
    std::string task_names = {};
    std::string gpu_binding = {};  // SLURMD_TRES_BIND: "gpu:per_task:1", since 23.11 "gres/gpu:..."; "": none
    // The number of units that the step got on a node, as far as Slurm says. For gres other than gpu nobody
    // learns which ones, so if they are fewer than the job's, there is no plan.
    std::optional<uint64_t> step_count = std::nullopt;
    std::vector<uint32_t> ranks = {};  // the node's, by local rank
    uint32_t local_rank = 0;
    uint32_t per_rank = 0;  // --dp-tiles; 0: auto
    bool own_only = false;  // --dp-visible=own
    // 0, or the errno if this task cannot open a device's file. EPERM comes from a device cgroup.
    std::function<int(const std::string& file)> open_error = [](const std::string&) { return 0; };
    GetVariable get = [](const char*) { return std::nullopt; };  // the task's environment until now
};

// A unit's number on its node, and the step's name for it.
using UnitNames = std::vector<std::pair<uint32_t, std::string>>;

// The shares of a node's ranks: the same for all of them to see, unless Slurm has bound each task to GPUs of
// its own (`by_task`; then `shares` has only that task's).
struct NodeShares {
    std::vector<Tiles> shares;  // by local rank
    UnitNames names;
    bool by_task = false;
    // As in TileView; none if each rank sees only its own.
    Tiles visible, firsts;
    // Each device that a rank must be able to open, and the first rank with tiles on it.
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

// Whether Slurm has bound each task to GPUs of its own. A failure is then one task's, else the node's.
bool is_bound_by_slurm(const TileFacts& facts);

// Fails if the step does not own what it asks for, if nobody can tell what it owns, and if a rank may not
// open its devices. Never takes a tile that the step does not own.
Try<TilePlan> plan_tiles(const TileFacts& facts);
// The same in two steps, of which a node needs the first only once.
Try<NodeShares> share_node(const TileFacts& facts);
Try<TilePlan> plan_rank(const TileFacts& facts, const NodeShares& node);

// The CPUs near the devices of these tiles, ascending; empty if one device is near none in particular.
std::vector<uint32_t> cpus_near(const TileInventory& inventory, const Tiles& tiles,
                                const std::function<std::vector<uint32_t>(uint32_t)>& cpus_of_numa);

}  // namespace dp
