// SPDX-License-Identifier: Apache-2.0
//
// What the plugin remembers between SPANK's call-backs, and the work of each context: launcher.cpp in srun,
// sbatch and salloc, node.cpp in slurmstepd, task.cpp in the freshly forked task. plugin.cpp calls them.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "common/interfaces.hpp"
#include "common/task_environment.hpp"
#include "fd_handover.hpp"
#include "site.hpp"
#include "tiles.hpp"

namespace dp::plugin {

struct State {
    Site site;
    Settings command_line;

    // In srun: the number of components of a heterogeneous step read so far, and the step's secret.
    uint32_t components = 0;
    std::string secret;

    // In slurmstepd, from init_post_opt and user_init on; fork copies it into every task.
    bool active = false;
    bool refused = false;  // by the launcher, which has said why: the tasks end without a word
    Settings settings;
    bool own_options = false;  // some of them were given to this srun itself
    bool own_binding = false;  // the user binds tasks to CPUs or memory
    StepFacts facts;
    NodeSetup node;
    uid_t exporter = 0;              // as in DaemonConfig
    std::optional<NodeTiles> tiles;  // with --dp-tiles
    // kNamesOfWorld in the environment with which the step began: the user's wish. What comes after that is
    // another plugin's, as pyxis brings it along from a container's image: nobody's wish, and guessed.
    std::array<std::optional<std::string>, kNamesOfWorld.size()> world_of_user;
    FdHandover handover;
    Try<void> handover_built;
    std::optional<InterfaceAddress> interface;  // with --dp-interface
    // What went wrong before there was a task to report it. Returning an error there would drain the node
    // (slurmd blames the node), so the message waits for task_init, where a failure fails only the step.
    std::optional<std::string> failure;
    bool failure_told = false;  // in a task: another one of the node has told it
    // The same for the broker's ports in a heterogeneous step: a failure only on the node of the broker.
    std::optional<std::string> broker_failure;
    uint32_t forked = 0;
    uint32_t exited = 0;
    uint64_t root_mount = 0;  // slurmstepd's
    bool signalled = false;   // a task ended by a signal: somebody ends the step

    // The environment as the user wants it: `inherited`, but for world_of_user. Keeps both by reference.
    GetVariable wishes(const GetVariable& inherited) const {
        return [this, &inherited](const char* name) {
            const auto of_world =
                std::find(kNamesOfWorld.begin(), kNamesOfWorld.end(), std::string_view(name));
            return of_world == kNamesOfWorld.end()
                       ? inherited(name)
                       : world_of_user[static_cast<size_t>(of_world - kNamesOfWorld.begin())];
        };
    }
};

State& state();

// A task's output reaches srun some milliseconds later; if the step is killed first, it is lost.
inline constexpr std::chrono::milliseconds kLastLineTravels{300};

// The mount that this process sees as "/": a different one in a container or in a mount namespace of its own.
uint64_t root_mount();

// ---- srun, sbatch, salloc (launcher.cpp); srun ends where the step cannot work ----
void allocator_post_options();
void launcher_post_options();
void launcher_step_created(spank_t spank);

// ---- slurmstepd (node.cpp); never fails, never waits but for the daemon's end ----
void node_post_options(spank_t spank);
void node_user_init(spank_t spank);
void node_task_forked(spank_t spank);
void node_task_exited(spank_t spank);

// A task's place in the step, as far as its node knows it; without tiles and CPUs.
TaskFacts task_facts(const State& s, uint32_t rank, uint32_t local_rank);

// network.cpp: this node's numeric address, from the chosen interface, else its name in the site's fast
// network (host-suffix=), else its own name, else the first interface that is up; 127.0.0.1 only if there is
// no other node. And all addresses at which rank 0's node may be reached, those in the chosen network first.
Try<std::string> address_of_node(const State& s);
Try<std::vector<std::string>> broker_addresses(const State& s);

// ---- the task, as the user (task.cpp); the task ends where it has no place in the world ----
void task_init(spank_t spank);

}  // namespace dp::plugin
