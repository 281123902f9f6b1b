// SPDX-License-Identifier: Apache-2.0
//
// With --dp-tiles: gathers what plan_tiles (tiles/plan.hpp) decides from.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "common/environment.hpp"
#include "common/node_environment.hpp"
#include "tiles/inventory.hpp"
#include "tiles/plan.hpp"

namespace dp::plugin {

struct State;

// Something that one of a node's tasks is to do, whichever comes first. Made before they are forked; without
// memory for it each of them is the first.
class OnceANode {
 public:
    static OnceANode shared_by_tasks();
    bool is_first() const { return !flag_ || !flag_->test_and_set(); }

 private:
    std::atomic_flag* flag_ = nullptr;  // lives as long as slurmstepd and its tasks
};

// What Slurm tells a task of how it binds it to GPUs.
inline constexpr const char* kGpuBindingVariable = "SLURMD_TRES_BIND";

// What a node knows before its tasks are forked.
struct NodeTiles {
    TileInventory inventory;
    std::vector<GresUnits> given;  // as in TileFacts
    std::optional<uint64_t> step_count;
    std::string step_units;
    std::string step_names;
    bool says_where = false;  // inventory.says_where()
    // Where it could be shared out once for all tasks, and the CPUs near each share.
    std::optional<NodeShares> shares;
    std::vector<std::vector<uint32_t>> near;
    // And what each of them gets, by local rank, as far as the node can tell; none where it fails for one
    // (plan_tasks). `settled`: a task cannot differ in more than the variables that were asked for.
    std::vector<TilePlan> plans;
    bool settled = false;
    std::vector<std::pair<std::string, std::optional<std::string>>> asked;

    TilesOfTasks of_tasks() const;
    // In a task that had to plan its own, and whether one of the node has said why it cannot.
    TilePlan own;
    OnceANode failure_told;
};

// In srun, for its nodes, one question to slurmctld each: what the job was given of their gres
// (kGresVariable), and what the step has asked for of these (kStepGresVariable; left out, all of it).
Try<std::string> gres_of_job(uint32_t job_id);
Try<std::string> gres_of_step(uint32_t job_id, uint32_t step_id);

// In user_init; `shares` and `near` come later.
Try<NodeTiles> gather_tiles(const State& s, const GetVariable& get);

// Of one of the node's tasks. `get` reads its environment, without what slurm-dp has put there for the node.
// In user_init any task is planned as if it might open every device.
TileFacts tile_facts(const State& s, uint32_t local_rank, const GetVariable& get);
Try<TilePlan> plan_of_task(const State& s, const TileFacts& facts);

// In user_init, with `shares`: fills in `plans` where it can. 16 tasks would need 20 us each for it. `facts`
// are one task's.
void plan_tasks(NodeTiles& tiles, TileFacts facts);
// In task_init: that of this task, or null where it has to be planned there. Fails where the task may not
// open a device. In `s`, where it stays: a task that writes to what all have inherited copies the page.
Try<const TilePlan*> find_plan(const State& s, uint32_t local_rank, const GetVariable& get);

// In task_init: 0, or the errno with which this process could not open the file.
int open_error(const std::string& file);

}  // namespace dp::plugin
