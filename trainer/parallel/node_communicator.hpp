// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs if nodes have several ranks (world.cpp opens it): gradients are in memory
// that a node's ranks share. Reduce-scatter within the node, then all-reduce each slice with the same local
// rank on the other nodes. What is equal on all ranks (sums, parameters, optimizer) exists once per node.
#pragma once

#include <gloo/context.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// What it needs from the world. The tests have a world of threads.
struct NodeSetting {
    std::int64_t node = 0;  // this rank's: a number that the ranks of its node have, and no other rank
    // Connects these ranks of the world, one per node, which all call; makes a new mesh for each name.
    std::function<Result<std::shared_ptr<::gloo::Context>>(const std::string& name,
                                                           std::vector<std::uint32_t> ranks)>
        connect;
    // Every rank's text, by rank. Every rank calls.
    std::function<Result<std::vector<std::string>>(const std::string& mine)> gather;
    // While its result lives, calls the given function once the world is being ended. May be empty.
    std::function<std::shared_ptr<void>(std::function<void()>)> on_end;
    std::string unwanted;  // why this rank does not want to share memory; "" if it does
    // Of a collective, as long as Gloo's: it waits for the slowest rank. A death is noticed at once.
    std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

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
