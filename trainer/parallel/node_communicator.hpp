// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs if nodes have several ranks (world.cpp opens it): gradients are in memory
// that a node's ranks share. Reduce-scatter within the node, then all-reduce each slice with the same local
// rank on the other nodes. What is equal on all ranks (sums, parameters, optimizer) exists once per node.
#pragma once

#include <memory>
#include <string>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/parallel/node_files.hpp"

namespace dp::trainer {

struct SharedNodes {
    std::unique_ptr<Communicator> communicator;
    // Why the ranks share no memory, the same on all; "" if they do, or if each has its own node.
    std::string why_not;
    SharedMemory memory = {};  // what it is faster for; nothing if they share none
};

// Returns `world`, or a faster communicator for what a device makes with make_to_sum() once it has `memory`, and for numbers that
// are reduced at once, or gathered and scattered on one node. It falls back on `world` for that between nodes, for asynchronous sums and broadcasts of other tensors,
// and for all_reduce() where the nodes have different numbers of ranks or the same ranks in different orders. Every rank
// calls.
Result<SharedNodes> share_nodes(std::unique_ptr<Communicator> world, const NodeSetting& setting);

}  // namespace dp::trainer
