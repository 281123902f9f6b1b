// SPDX-License-Identifier: Apache-2.0
#include "engine/next_world.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"

namespace dp {
namespace {

std::optional<size_t> spare_for(std::span<const NodeOfWorld> nodes, const NextWorld& world, size_t ranks) {
    for (size_t node = 0; node < nodes.size(); ++node)
        if (nodes[node].is_here && world.ranks[node].empty() && nodes[node].tasks >= ranks) return node;
    return std::nullopt;
}

// The ranks that are left, from 0 on in their old order.
void renumber(NextWorld& world) {
    std::map<uint32_t, uint32_t> numbers;
    for (const auto& ranks : world.ranks)
        for (const uint32_t rank : ranks) numbers[rank] = 0;
    uint32_t next = 0;
    for (auto& [old, number] : numbers) number = next++;
    for (auto& ranks : world.ranks)
        for (uint32_t& rank : ranks) rank = numbers[rank];
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

Try<NextWorld> next_world(std::span<const NodeOfWorld> nodes, const Settings& settings) {
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
    if (world.shrank) {
        DP_TRY(check_smaller(world, settings));
        renumber(world);
    }
    return world;
}

}  // namespace dp
