// SPDX-License-Identifier: Apache-2.0
//
// The plan file: where a node's daemon leaves the plan and its tasks wait for it, without a socket or a
// protocol. A memfd holds the text and one byte in a pipe, never read, says that it is whole. See NodeSetup.
#pragma once

#include <chrono>
#include <string>

#include "base/result.hpp"
#include "common/fields.hpp"

namespace dp {

// What a node's tasks need to know that only the daemon can tell.
struct NodePlan {
    std::string master_addr;  // numeric
    uint16_t master_port = 0;
    uint16_t coordinator_port = 0;  // held on rank 0's node for a coordinator of the program's own (JAX)
    std::string node_addr;          // this node's own address, as the other nodes reach it
    std::string table;  // for --dp-verbose and --dp-dry-run on rank 0's node, lines of text; else empty
};

// The daemon's side: publishes the plan, or the reason why there is none ("": another node says it). To be
// called once.
Try<void> publish_plan(int plan_file, int ready_write, const NodePlan& plan);
Try<void> publish_failure(int plan_file, int ready_write, const std::string& why);

// A task's side: waits until the plan file is ready; fails with the daemon's reason, when the daemon died, or
// at the deadline.
Try<NodePlan> wait_for_plan(int plan_file, int ready_read, std::chrono::milliseconds timeout);

}  // namespace dp
