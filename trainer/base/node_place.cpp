// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/node_place.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace dp::trainer {

NodePlace place_among(std::span<const std::int64_t> node_of_rank, std::int64_t rank) {
    using Ranks = std::vector<std::uint32_t>;
    std::map<std::int64_t, Ranks> ranks_of;
    for (std::size_t i = 0; i < node_of_rank.size(); ++i)
        ranks_of[node_of_rank[i]].push_back(static_cast<std::uint32_t>(i));
    NodePlace place;
    place.local_ranks = ranks_of.at(node_of_rank[static_cast<std::size_t>(rank)]);
    place.local_rank =
        std::find(place.local_ranks.begin(), place.local_ranks.end(), rank) - place.local_ranks.begin();

    std::vector<Ranks> nodes;
    for (const auto& node : ranks_of) nodes.push_back(node.second);
    std::sort(nodes.begin(), nodes.end());  // by their first ranks
    const auto [fewest, most] = std::minmax_element(
        nodes.begin(), nodes.end(), [](const Ranks& a, const Ranks& b) { return a.size() < b.size(); });
    place.nodes = static_cast<std::int64_t>(nodes.size());
    place.fewest = static_cast<std::int64_t>(fewest->size());
    place.is_any_shared = most->size() > 1;
    place.is_homogeneous =
        std::adjacent_find(nodes.begin(), nodes.end(), [](const Ranks& one, const Ranks& next) {
            return !std::equal(one.begin(), one.end(), next.begin(), next.end(), std::less<>());
        }) == nodes.end();
    place.is_in_order = std::ranges::all_of(
        nodes, [](const Ranks& node) { return node.back() - node.front() + 1 == node.size(); });
    if (place.local_rank >= place.fewest) return place;
    for (const Ranks& node : nodes) place.peers.push_back(node[static_cast<std::size_t>(place.local_rank)]);
    std::sort(place.peers.begin(), place.peers.end());
    return place;
}

std::optional<std::int64_t> NodePlace::peer_before(std::int64_t rank) const {
    if (!is_homogeneous || nodes < 2) return std::nullopt;
    const auto here = std::find(peers.begin(), peers.end(), rank);
    return here == peers.begin() ? peers.back() : *std::prev(here);
}

std::int64_t slices_of(std::int64_t numbers, std::int64_t ranks) {
    return std::clamp<std::int64_t>(numbers / kLeastSlice, 1, ranks);
}

Shard slice_of(std::int64_t numbers, std::int64_t slices, std::int64_t index) {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    const auto begin = [&](std::int64_t of) {
        return of == slices ? numbers : numbers / slices * of / kLine * kLine;
    };
    return {begin(index), begin(index + 1) - begin(index)};
}

Shard NodeShare::part_of(std::int64_t numbers) const {
    const std::int64_t slices = slices_of(numbers, ranks);
    return index < slices ? slice_of(numbers, slices, index) : Shard{numbers, 0};
}

}  // namespace dp::trainer
