// SPDX-License-Identifier: Apache-2.0
//
// What slurmstepd knows about its step.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/ports.hpp"

namespace dp::plugin {

// The facts of a step as one node's slurmstepd knows them.
//
// A heterogeneous step (srun A : B) has one slurmstepd per component of a node, and SPANK counts
// within the component. So do these facts until task_init, whose environment has the component's place
// in the step (place_component).
struct StepFacts {
    uid_t user = 0;
    uint32_t job_id = 0;
    // Each component of a heterogeneous job is a job of its own; the step belongs to the leader.
    uint32_t leader_job_id = 0;
    uint32_t step_id = 0;
    uint32_t restart = 0;
    bool heterogeneous = false;
    uint32_t nodes = 0;           // of all components
    uint32_t world_size = 0;      // of all components
    uint32_t node_rank = 0;       // Slurm's node id is another one where its nodes are not in rank order
    uint32_t cpus = 0;            // of the step on this node
    uint32_t cpus_per_task = 0;   // as the user asked (--cpus-per-task); 0 where not
    std::vector<uint32_t> ranks;  // world ranks by local rank
    std::string node_list;        // by node rank; of a heterogeneous step in an order of Slurm's
    std::string host;
    std::string secret;
    PortSeed port_seed;

    std::string name() const { return std::to_string(job_id) + "." + std::to_string(step_id); }
    bool has_rank_zero() const;
    std::string rank_zero_host() const;  // not of a heterogeneous step: nobody tells its nodes in order
    void place_component(uint32_t first_rank, uint32_t node);
};

}  // namespace dp::plugin
