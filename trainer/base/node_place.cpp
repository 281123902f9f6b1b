// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/node_place.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>

namespace dp::trainer {
namespace {

constexpr std::int64_t kLine = 64 / sizeof(float);

// The ranks of each node, ascending.
using RanksOfNodes = std::map<std::int64_t, std::vector<std::uint32_t>>;

bool is_even(const RanksOfNodes& nodes) {
    std::vector<std::vector<std::uint32_t>> in_order;
    for (const auto& node : nodes) in_order.push_back(node.second);
    std::sort(in_order.begin(), in_order.end());  // by their first ranks
    for (std::size_t i = 1; i < in_order.size(); ++i) {
        const auto &one = in_order[i - 1], &next = in_order[i];
        if (one.size() != next.size()) return false;
        if (!std::equal(one.begin(), one.end(), next.begin(), std::less<>())) return false;
    }
    return true;
}

}  // namespace

NodePlace place_among(std::span<const std::int64_t> node_of_rank, std::int64_t rank) {
    RanksOfNodes nodes;
    for (std::size_t i = 0; i < node_of_rank.size(); ++i)
        nodes[node_of_rank[i]].push_back(static_cast<std::uint32_t>(i));

    NodePlace place;
    place.neighbours = nodes.at(node_of_rank[static_cast<std::size_t>(rank)]);
    place.index =
        std::find(place.neighbours.begin(), place.neighbours.end(), rank) - place.neighbours.begin();
    place.nodes = static_cast<std::int64_t>(nodes.size());
    place.fewest = static_cast<std::int64_t>(place.neighbours.size());
    for (const auto& node : nodes) {
        const auto ranks = static_cast<std::int64_t>(node.second.size());
        place.fewest = std::min(place.fewest, ranks);
        place.has_neighbours_anywhere = place.has_neighbours_anywhere || ranks > 1;
    }
    place.is_even = is_even(nodes);
    if (place.index >= place.fewest) return place;
    for (const auto& node : nodes)
        place.counterparts.push_back(node.second[static_cast<std::size_t>(place.index)]);
    std::sort(place.counterparts.begin(), place.counterparts.end());
    return place;
}

std::int64_t slices_of(std::int64_t numbers, std::int64_t ranks) {
    return std::clamp<std::int64_t>(numbers / kLeastSlice, 1, ranks);
}

Slice slice_of(std::int64_t numbers, std::int64_t slices, std::int64_t index) {
    const auto begin = [&](std::int64_t of) {
        return of == slices ? numbers : numbers / slices * of / kLine * kLine;
    };
    return {begin(index), begin(index + 1) - begin(index)};
}

Shard NodeShare::part_of(std::int64_t numbers) const {
    const std::int64_t slices = slices_of(numbers, ranks);
    if (index >= slices) return {numbers, 0};
    const Slice mine = slice_of(numbers, slices, index);
    return {mine.first, mine.count};
}

}  // namespace dp::trainer
