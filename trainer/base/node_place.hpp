// SPDX-License-Identifier: Apache-2.0
//
// Which ranks are on which node, and each local rank's slice of a sum and of what the node has once: pure.
// Used by node_communicator.cpp and the training loop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/partition.hpp"

namespace dp::trainer {

// A rank's place on its node and in the world. All ranks are world ranks, ascending.
struct NodePlace {
    std::vector<std::uint32_t> local_ranks;  // the ranks of its node, itself included
    std::int64_t local_rank = 0;             // its index among them
    std::int64_t nodes = 1;
    std::int64_t fewest = 1;           // ranks of the smallest node; as many of each node reduce
    std::vector<std::uint32_t> peers;  // those with its local rank, one per node; empty if a node has none
    bool is_any_shared = false;        // a node has more than one rank
    // Every node has the same number of ranks in the same order, so results are bit-identical everywhere.
    bool is_homogeneous = false;
    bool is_in_order = false;  // ranks are numbered node by node

    // The peer of `rank`, whose place this is, on the node before (of the first, on the last); nullopt unless there are
    // several nodes with as many ranks each.
    std::optional<std::int64_t> peer_before(std::int64_t rank) const;
};

// `node_of_rank`: any number that is the same for the ranks of a node.
NodePlace place_among(std::span<const std::int64_t> node_of_rank, std::int64_t rank);

// The fewest elements that are worth waking another rank for.
inline constexpr std::int64_t kLeastSlice = std::int64_t{1} << 14;

// How many ranks of a node reduce a tensor of that many elements: at least one, at most `ranks`.
std::int64_t slices_of(std::int64_t numbers, std::int64_t ranks);

// The slice of the rank with this index. Slices begin at cache lines: no two ranks write to the same one.
Shard slice_of(std::int64_t numbers, std::int64_t slices, std::int64_t index);

// A rank's share if the ranks of a node keep one copy of what is equal on all.
struct NodeShare {
    std::int64_t index = 0;   // this rank's, among those of its node
    std::int64_t ranks = 1;   // of this node
    std::int64_t fewest = 1;  // of the node with the fewest

    // The part that this rank writes, of that many elements; empty if there are too few.
    Shard part_of(std::int64_t numbers) const;
};

}  // namespace dp::trainer
