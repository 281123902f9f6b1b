// SPDX-License-Identifier: Apache-2.0
//
// With --dp-tiles: gathers the facts for plan_tiles (tiles/plan.hpp).
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "common/environment.hpp"
#include "common/options.hpp"
#include "step_facts.hpp"
#include "tiles/inventory.hpp"
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
    std::vector<GresUnits> given;  // as in TileFacts
    std::optional<uint64_t> step_count;
    std::string step_units;
    std::string step_names;
    bool says_where = false;  // inventory.says_where()
    // The shares, if they could be computed once for all tasks, and the CPUs near each share.
    std::optional<NodeShares> shares;
    std::vector<std::vector<uint32_t>> near;
    // Each task's plan, by local rank, as far as the node can tell; empty if it fails for one of them
    // (plan_tasks). `settled`: a task can differ only in the requested variables.
    std::vector<TilePlan> plans;
    bool settled = false;
    std::vector<std::pair<std::string, std::optional<std::string>>> asked;

    // In a task that had to plan its own; and whether one task of the node has said why it cannot.
    TilePlan own;
    OnceANode failure_told;
};

// In srun, for its nodes, one request to slurmctld each: the job's gres (kGresVariable), and what the step
// has asked for of them (kStepGresVariable; unset: all of it).
Try<std::string> gres_of_job(uint32_t job_id);
Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id);

// In user_init; `shares` and `near` come later.
Try<NodeTiles> gather_tiles(const StepFacts& step, const std::string& tiles_conf, const GetVariable& get);

// The facts for one task of the node. `get` reads its environment, without what slurm-dp has set for the
// node. In user_init, plans as if a task might open every device.
TileFacts tile_facts(const StepFacts& step, const Settings& settings, const NodeTiles& tiles,
                     uint32_t local_rank, const GetVariable& get);
Try<TilePlan> plan_of_task(const NodeTiles& tiles, const TileFacts& facts);

// In user_init, with `shares`: fills in `plans` if possible. In the tasks it would take 20 us each. `facts`
// are one task's.
void plan_tasks(NodeTiles& tiles, TileFacts facts);
// In task_init: this task's plan, or null if it has to be computed there. Fails if the task may not open a
// device. The plan stays in `tiles`: a task that wrote to inherited memory would copy the page.
Try<const TilePlan*> find_plan(const NodeTiles& tiles, uint32_t local_rank, const GetVariable& get);

// In task_init: 0, or the errno with which this process could not open the file.
int open_error(const std::string& file);

}  // namespace dp::plugin
