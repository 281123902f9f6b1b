// SPDX-License-Identifier: Apache-2.0
//
// Who is on which node, and which part each rank of a node takes of a sum, and of what they have once: pure.
// node_communicator.cpp and the training loop ask.
#ifndef TRAINER_BASE_NODE_PLACE_HPP
#define TRAINER_BASE_NODE_PLACE_HPP

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/base/partition.hpp"

namespace dp::trainer {

// A rank's place on its node and in the world. Ranks are those of the world, ascending.
struct NodePlace {
    std::vector<std::uint32_t> neighbours;  // all ranks of its node, itself included
    std::int64_t index = 0;                 // its own among them
    std::int64_t nodes = 1;
    // Of the node with the fewest ranks. So many ranks of each node reduce, each with its like on the others.
    std::int64_t fewest = 1;
    // The ranks with the same index on each node; empty where some node has none.
    std::vector<std::uint32_t> counterparts;
    bool has_neighbours_anywhere = false;  // a node has more than one rank
    // Each rank of the world has its like on all nodes, and of each index they are on the nodes in the same
    // order: what they add up in that order, each for itself, has the same bits for all.
    bool is_even = false;
};

// `node_of_rank`: any number that is the same for the ranks of a node.
NodePlace place_among(std::span<const std::int64_t> node_of_rank, std::int64_t rank);

// A part of a tensor's numbers.
struct Slice {
    std::int64_t first = 0, count = 0;
    bool operator==(const Slice&) const = default;
};

// Numbers that are worth waking another rank for.
inline constexpr std::int64_t kLeastSlice = std::int64_t{1} << 14;

// How many ranks of a node reduce a tensor of so many numbers: at most `ranks`, one at least.
std::int64_t slices_of(std::int64_t numbers, std::int64_t ranks);

// The part that the rank of this index takes. Parts begin at multiples of 64 bytes of f32, so that no two
// ranks write to one cache line of an aligned tensor.
Slice slice_of(std::int64_t numbers, std::int64_t slices, std::int64_t index);

// A rank of a node whose ranks have in one copy what is the same on all: who looks after which part of it.
struct NodeShare {
    std::int64_t index = 0;   // this rank's, among those of its node
    std::int64_t ranks = 1;   // of this node
    std::int64_t fewest = 1;  // of the node with the fewest

    // The part that is this rank's to write, of so many numbers; maybe none, where they are few.
    Shard part_of(std::int64_t numbers) const;
};

}  // namespace dp::trainer

#endif
