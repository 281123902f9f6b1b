// SPDX-License-Identifier: Apache-2.0
//
// With --dp-tiles: gathers the facts for plan_tiles (tiles/plan.hpp).
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <atomic>

#include "step_facts.hpp"
#include "tiles/plan.hpp"

namespace dp::plugin {

// Something that only one of a node's tasks does, whichever comes first. Made before they are forked; without
// memory for it, each task acts as the first.
class OnceANode {
 public:
    static OnceANode shared_by_tasks();
    bool is_first() const { return !flag_ || !flag_->test_and_set(); }

 private:
    std::atomic_flag* flag_ = nullptr;  // lives as long as slurmstepd and its tasks
};

// The variable in which Slurm tells a task its binding to GPUs.
inline constexpr const char* kGpuBindingVariable = "SLURMD_TRES_BIND";

// What a node knows about tiles before its tasks are forked.
struct NodeTiles {
    TileInventory inventory;
    TileFacts facts;  // what all tasks have in common
    // The shares, if they could be computed once for all tasks, and the CPUs near each share.
    std::optional<NodeShares> shares;
    std::vector<std::vector<uint32_t>> near;
    OnceANode failure_told;  // by a task to which Slurm has given GPUs of its own
};

// In srun, for its nodes, one request to slurmctld each: the job's gres (kGresVariable), and what the step
// has asked for of them (kStepGresVariable; unset: all of it).
Try<std::string> gres_of_job(uint32_t job_id);
Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id);

// In user_init. `get` reads the node's environment. If the tiles cannot be shared out here, each task says why.
Try<NodeTiles> gather_tiles(const StepFacts& step, const Settings& settings, const std::string& tiles_conf,
                            const GetVariable& get);

// In task_init, of this task. `get` reads its environment, without what slurm-dp has set for the node.
TileFacts facts_of_task(const NodeTiles& tiles, uint32_t local_rank, const GetVariable& get);
Try<TilePlan> plan_of_task(const NodeTiles& tiles, TileFacts facts);

// ---- CPUs and memory near the tiles (binding.cpp) ----

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
