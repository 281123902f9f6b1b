// SPDX-License-Identifier: Apache-2.0
//
// From the facts of a step to the environment of one task: pure, and the only place that knows the variables'
// names. Used by the plugin (task_init) and by `dpctl launch`.
#pragma once

#include <array>
#include <span>

#include "common/environment_list.hpp"
#include "common/options.hpp"
#include "common/plan_file.hpp"

namespace dp {

// A task's place in the step.
struct TaskFacts {
    uint32_t rank = 0;
    uint32_t world_size = 0;
    uint32_t first_world_size = 0;  // before nodes were lost
    uint32_t local_rank = 0;
    uint32_t local_world_size = 0;
    uint32_t node_rank = 0;
    uint32_t nodes = 0;
    uint32_t generation = 0;
    std::string nccl_debug_file;          // "": none
    std::string hostfile;                 // its path; "": none
    pid_t daemon = 0;                     // this node's; 0: not known
    uint32_t cpus = 0;                    // of this task; 0 where the launcher cannot tell
    Settings settings;                    // the step's, complete
    ModelParallel sizes;                  // tensor x data x pipeline = world_size
    std::string interface;                // the chosen one (--dp-interface); "" where none was
    std::string socket;                   // DP_SOCKET
    std::span<const TaskVariable> tiles;  // with --dp-tiles: those of its tiles (tiles/plan.hpp); not owned

    // What the plan knows better: the generation and, where it tells, the task's place in it.
    void take(const NodePlan& plan) {
        generation = plan.generation;
        daemon = plan.daemon;
        if (!plan.place) return;
        rank = plan.place->ranks.at(local_rank);
        world_size = plan.place->world_size;
        local_world_size = static_cast<uint32_t>(plan.place->ranks.size());
        node_rank = plan.place->node_rank;
        nodes = plan.place->nodes;
        sizes = settings.sizes(world_size);
    }
};

struct TaskEnvironment {
    std::vector<EnvironmentChange> changes;
    std::vector<std::string> kept;      // of names that the whole world shares: the user's that stay
    std::vector<std::string> warnings;  // for rank 0 to print; the same in every task but for per-task values
};

// The variables of PyTorch's env://, a task's world and its place there.
inline constexpr std::array<const char*, 9> kNamesOfWorld = {
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE",      "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "NODE_RANK",   "GROUP_RANK",  "GROUP_WORLD_SIZE"};

// Only ours (TaskVariable::Whose::ours): a step without tiles has none of them, whatever an outer step had.
inline constexpr std::array<const char*, 6> kNamesOfTiles = {
    "DP_TILE_MASK", "DP_TILE_LIST", "DP_TILE_COUNT", "DP_TILES_PER_DEVICE", "DP_TILE_DEVICE", "DP_TILE_NUMA"};

// What of ours an inner step would find, all in one.
inline constexpr const char* kInjected = "DP_INJECTED";

// Names that the whole world shares (MASTER_ADDR, OMP_NUM_THREADS, ...) stay as the user set them; names of a
// single task (RANK, LOCAL_RANK, ...) are always ours. Values that an outer step of ours set do not count as
// the user's: DP_INJECTED lists them, as NAME=VALUE separated by spaces.
TaskEnvironment task_environment(const TaskFacts& facts, const NodePlan& plan, const GetVariable& get);

// The part of it that all tasks of a node share and that needs no plan; `any` is one of them.
std::vector<EnvironmentChange> node_variables(const TaskFacts& any, const GetVariable& get);

// The CPUs of one of `local_tasks` tasks on a node: its share of the step's CPUs there, but no more than it
// is bound to or --cpus-per-task says. (--cpus-per-task alone would not do: inside sbatch -c 4 it may be the
// job's and not this step's.) 0 means unknown, in arguments and result.
uint32_t cpus_of_task(uint32_t asked, uint32_t bound, uint32_t step_cpus_on_node, uint32_t local_tasks);

// Variables from the launcher's plugin to the nodes' plugins; no task may see them.
inline constexpr const char* kSecretVariable = "SLURM_DP_SECRET";
// The step's nodes in the order of NODE_RANK, where Slurm's is another one.
inline constexpr const char* kNodeOrderVariable = "SLURM_DP_NODE_ORDER";
inline constexpr const char* kStepVariable = "SLURM_DP_STEP";
// The job's gres on its nodes (tiles/gres.hpp).
inline constexpr const char* kGresVariable = "SLURM_DP_GRES";
// The step's gres on each node, as Slurm writes a request.
inline constexpr const char* kStepGresVariable = "SLURM_DP_STEP_GRES";
// In kStepVariable: the launcher has refused the step and said why.
inline constexpr const char* kRefusedStep = "refused";
// In kStepVariable: the user binds tasks to CPUs or memory.
inline constexpr const char* kOwnBinding = "bound=1";
// In kStepVariable: some of the settings were given to this srun, so the step insists on a world.
inline constexpr const char* kOwnOptions = "own=1";
inline constexpr std::array kLauncherVariables = {kSecretVariable, kNodeOrderVariable, kStepVariable,
                                                  kGresVariable, kStepGresVariable};

}  // namespace dp
