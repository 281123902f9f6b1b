// SPDX-License-Identifier: Apache-2.0
//
// Who measures with whom: in each round every node has at most one partner, and after all rounds each two have met once
// (the circle method of round-robin tournaments). Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace dp::doctor {

inline uint32_t rounds_of(uint32_t nodes) {
    return nodes < 2 ? 0 : nodes + nodes % 2 - 1;
}

// nullopt: with an odd number of nodes, one pauses.
inline std::optional<uint32_t> partner_in(uint32_t round, uint32_t node, uint32_t nodes) {
    const uint64_t others = rounds_of(nodes);  // an odd number; who is number `others` stays in its place
    uint64_t partner = (round + others - node % others) % others;
    if (node == others)
        partner = round * ((others + 1) / 2) % others;  // the one that would meet itself
    else if (partner == node)
        partner = others;
    return partner < nodes ? std::optional(static_cast<uint32_t>(partner)) : std::nullopt;
}

}  // namespace dp::doctor
