// SPDX-License-Identifier: Apache-2.0
//
// The plan file: a node's daemon leaves the plan there, and its tasks wait for it, without a socket or a
// protocol. A memfd holds the text; one byte in a pipe, never read, says that it is complete. See NodeSetup.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace dp {

// A node's place in the world of one generation.
struct PlaceOfNode {
    std::vector<uint32_t> ranks;  // of the node's first tasks; its other tasks have none
    uint32_t node_rank = 0;       // among the nodes with ranks
    uint32_t nodes = 0;           // that have ranks
    uint32_t world_size = 0;
};

// What only the daemon can tell a node's tasks.
struct NodePlan {
    std::string master_addr;  // numeric
    uint16_t master_port = 0;
    uint16_t coordinator_port = 0;  // held on rank 0's node for a coordinator of the program's own (JAX)
    std::string node_addr;          // this node's own address, as the other nodes reach it
    std::string table;  // for --dp-verbose and --dp-dry-run on rank 0's node, lines of text; else empty
    uint32_t generation = 0;
    using Place = PlaceOfNode;
    // With --dp-on-failure=restart, where a later generation may have another; otherwise the launcher knows it.
    std::optional<Place> place = {};
    pid_t daemon = 0;  // the daemon's own process
    // Of the nodes with ranks, by their lowest ranks, as Slurm writes them: "node[01-03]", "4(x2),3". Empty where they do not fit into a packet.
    std::string hosts = {}, ranks_per_host = {};
};

// A plan as text, lines of fields (fields.hpp); `read_plan` fails where it has no address.
std::string write_plan(const NodePlan& plan);
Try<NodePlan> read_plan(std::string_view text);

// The daemon's side, once: the plan, or the reason why there is none ("": another node reports it).
Try<void> publish_plan(int plan_file, int ready_write, const NodePlan& plan);
Try<void> publish_failure(int plan_file, int ready_write, const std::string& why);

// A task's side: waits for the plan. Fails with the daemon's reason, if the daemon died, or at the deadline.
Try<NodePlan> wait_for_plan(int plan_file, int ready_read, std::chrono::milliseconds timeout);

}  // namespace dp
