// SPDX-License-Identifier: Apache-2.0
#include "engine/next_world.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"

namespace dp {
namespace {

std::optional<size_t> spare_for(std::span<const NodeOfWorld> nodes, const NextWorld& world, size_t ranks) {
    for (size_t node = 0; node < nodes.size(); ++node)
        if (nodes[node].is_here && world.ranks[node].empty() && nodes[node].tasks >= ranks) return node;
    return std::nullopt;
}

// The ranks that are left, from 0 on: those of node `first`, if given, then the others in their old order.
void renumber(NextWorld& world, std::optional<uint32_t> first = {}) {
    std::map<std::pair<bool, uint32_t>, uint32_t> numbers;
    for (size_t node = 0; node < world.ranks.size(); ++node)
        for (const uint32_t rank : world.ranks[node]) numbers[{node != first, rank}] = 0;
    uint32_t next = 0;
    for (auto& [old, number] : numbers) number = next++;
    for (size_t node = 0; node < world.ranks.size(); ++node)
        for (uint32_t& rank : world.ranks[node]) rank = numbers[{node != first, rank}];
}

// Gives rank 0 to the broker's node.
Try<void> move_rank_zero(std::span<const NodeOfWorld> nodes, NextWorld& world, uint32_t broker) {
    const auto has_it = [](const auto& ranks) { return std::ranges::count(ranks, 0U) > 0; };
    const auto found = std::ranges::find_if(world.ranks, has_it);
    const auto holder = static_cast<size_t>(found - world.ranks.begin());
    if (found == world.ranks.end() || holder == broker) return {};
    auto& own = world.ranks[broker];
    const auto fits = [&](size_t node, const auto& ranks) { return ranks.size() <= nodes[node].tasks; };
    if (own.size() == found->size() || (own.empty() && fits(broker, *found))) {
        if (own.empty()) std::ranges::replace(world.came, static_cast<uint32_t>(holder), broker);
        std::swap(own, *found);
        return {};
    }
    if (own.empty()) return fail("the new broker's node has too few tasks for the ranks of rank 0's node");
    renumber(world, broker);
    return {};
}

Try<void> check_smaller(const NextWorld& world, const Settings& settings) {
    const auto left = static_cast<size_t>(
        std::ranges::count_if(world.ranks, [](const auto& ranks) { return !ranks.empty(); }));
    if (!settings.min_nodes)
        return fail(
            settings.spares.value_or(0) > 0
                ? "no spare node is left, and without --dp-min-nodes the world cannot shrink"
                : "no other node can take over; --dp-spares or --dp-min-nodes would let the step go on");
    if (left < *settings.min_nodes)
        return fail(plural(left, "node") + (left == 1 ? " is" : " are") +
                    " left, fewer than --dp-min-nodes=" + std::to_string(*settings.min_nodes));
    const uint64_t replica = uint64_t{settings.tensor.value_or(1)} * settings.pipeline.value_or(1);
    if (world.size % replica != 0)
        return fail("the " + plural(world.size, "rank") + " that are left cannot be divided by --dp-tensor=" +
                    std::to_string(settings.tensor.value_or(1)) +
                    " times --dp-pipeline=" + std::to_string(settings.pipeline.value_or(1)));
    return {};
}

}  // namespace

Try<NextWorld> next_world(std::span<const NodeOfWorld> nodes, const Settings& settings, uint32_t broker) {
    NextWorld world;
    for (const NodeOfWorld& node : nodes)
        world.ranks.push_back(node.is_here ? node.ranks : std::vector<uint32_t>());
    for (const NodeOfWorld& node : nodes) {
        if (node.is_here || node.ranks.empty()) continue;
        if (const auto spare = spare_for(nodes, world, node.ranks.size())) {
            world.ranks[*spare] = node.ranks;
            world.came.push_back(static_cast<uint32_t>(*spare));
        } else {
            world.shrank = true;
        }
    }
    for (const auto& ranks : world.ranks) world.size += static_cast<uint32_t>(ranks.size());
    // Nobody knows whose the missing ones were.
    for (const auto& ranks : world.ranks)
        world.shrank |= std::ranges::any_of(ranks, [&](uint32_t rank) { return rank >= world.size; });
    if (world.shrank) {
        DP_TRY(check_smaller(world, settings));
        renumber(world);
    }
    DP_TRY(move_rank_zero(nodes, world, broker));
    return world;
}

std::vector<uint32_t> replaced_ranks(std::span<const NodeOfWorld> nodes, const NextWorld& world,
                                     const std::set<uint32_t>& survivors) {
    std::vector<uint32_t> replaced;
    for (size_t node = 0; node < world.ranks.size(); ++node)
        for (size_t local = 0; local < world.ranks[node].size(); ++local) {
            const auto& before = nodes[node].ranks;
            if (local >= before.size() || !survivors.contains(before[local]))
                replaced.push_back(world.ranks[node][local]);
        }
    std::ranges::sort(replaced);
    return replaced;
}

std::vector<std::vector<uint32_t>> ranks_of_lost(uint32_t world_size, std::span<const NodeOfWorld> nodes,
                                                 size_t lost, uint32_t most) {
    std::vector<bool> has_home(world_size);
    for (const NodeOfWorld& node : nodes)
        for (const uint32_t rank : node.ranks) has_home[rank] = true;
    const auto grouped = [&](bool as_neighbours) {
        std::vector<std::vector<uint32_t>> groups;
        for (uint32_t rank = 0; rank < world_size; ++rank) {
            if (has_home[rank]) continue;
            if (groups.empty() || groups.back().size() >= most || (as_neighbours && has_home[rank - 1]))
                groups.emplace_back();
            groups.back().push_back(rank);
        }
        return groups;
    };
    auto groups = grouped(true);
    return groups.size() <= lost ? groups : grouped(false);
}

}  // namespace dp
