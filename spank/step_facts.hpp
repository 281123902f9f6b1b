// SPDX-License-Identifier: Apache-2.0
//
// What slurmstepd knows about its step: the facts of one node.
//
// A heterogeneous step (srun A : B) has one slurmstepd per component of a node, and SPANK counts within the
// component. So do these facts until task_init, whose environment has the component's place in the step.
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <algorithm>

#include "common/daemon_config.hpp"

namespace dp::plugin {

struct StepFacts : NodeOfStep {
    uid_t user = 0;
    // Each component of a heterogeneous job is a job of its own; the step belongs to the leader.
    uint32_t leader_job_id = 0;
    bool heterogeneous = false;  // then node_list is in an order of Slurm's
    uint32_t cpus = 0;           // of the step on this node
    uint32_t cpus_per_task = 0;  // as the user asked (--cpus-per-task); 0 where not
    PortSeed port_seed;

    std::string name() const { return std::to_string(job_id) + "." + std::to_string(step_id); }
    bool has_rank_zero() const { return std::find(ranks.begin(), ranks.end(), 0u) != ranks.end(); }
    std::string rank_zero_host() const;  // not of a heterogeneous step: nobody tells its nodes in order
};

// In user_init: fills in the facts, from SPANK and the node's environment. A failure leaves what is known: its
// message names the host, and the ids lead to the step that it ends.
Try<void> gather_facts(spank_t spank, const GetVariable& get, StepFacts& facts);

}  // namespace dp::plugin
