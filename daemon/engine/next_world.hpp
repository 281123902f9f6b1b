// SPDX-License-Identifier: Apache-2.0
//
// --dp-spares and --dp-min-nodes: which node has which ranks in the next generation. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "base/failure.hpp"
#include "common/options.hpp"

namespace dp {

// A node of the step as the last generation leaves it.
struct NodeOfWorld {
    bool is_here = false;
    uint32_t tasks = 0;           // that can have ranks
    std::vector<uint32_t> ranks;  // that they had
};

struct NextWorld {
    std::vector<std::vector<uint32_t>> ranks;  // by node; of a spare node and of a lost one none
    uint32_t size = 0;
    std::vector<uint32_t> came;  // nodes that were spares
    bool shrank = false;
};

// The first spare with enough tasks takes the ranks of the first lost node, and so on. Ranks keep their numbers while
// the world keeps its size. When no spare is left, the world goes on without the lost nodes' ranks if --dp-min-nodes
// allows it, and the others are renumbered in their old order. The broker's node gets rank 0, as it holds MASTER_PORT: it swaps
// ranks with the node that has it if their counts match or it has none itself, else all ranks are renumbered. The
// failure says why not.
Try<NextWorld> next_world(std::span<const NodeOfWorld> nodes, const Settings& settings, uint32_t broker);

// The ranks of the next world, ascending, that need a new process. `survivors`: ranks of the last world.
std::vector<uint32_t> replaced_ranks(std::span<const NodeOfWorld> nodes, const NextWorld& world,
                                     const std::set<uint32_t>& survivors);

// The ranks that no node has, grouped for `lost` nodes: consecutive ranks, at most `most` a group; if that makes more
// groups than nodes, groups of `most` regardless of gaps.
std::vector<std::vector<uint32_t>> ranks_of_lost(uint32_t world_size, std::span<const NodeOfWorld> nodes,
                                                 size_t lost, uint32_t most);

}  // namespace dp
