// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a world still hold of the last one's state, and which of it makes a whole: pure. For survival.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "trainer/base/partition.hpp"

namespace dp::trainer {

// A rank's parts of the state, all as they were after `step`. Some parts are held by several ranks.
struct Holding {
    std::int64_t rank;
    std::int64_t step;
    std::vector<Shard> parts;
    bool can_follow = false;  // takes the next step if it is given the gradients, and gives its own
};

// A part, and who gives it.
struct Piece {
    Shard part;
    std::int64_t rank;
    std::size_t index;  // of the part, among those of this rank
};

struct Whole {
    std::int64_t step;
    std::vector<Piece> pieces;  // one behind the other, from 0 to the end
};

// The newest step at which the parts make `all` numbers; of each the lowest rank that has it. `holdings`: by rank. Where
// parts of worlds of several sizes meet, a whole may be missed.
inline std::optional<Whole> newest_whole(const std::vector<Holding>& holdings, std::int64_t all) {
    std::set<std::int64_t, std::greater<>> steps;
    for (const Holding& one : holdings) steps.insert(one.step);
    const auto piece_at = [&](std::int64_t step, std::int64_t first) -> std::optional<Piece> {
        for (const Holding& one : holdings)
            for (std::size_t i = 0; one.step == step && i < one.parts.size(); ++i)
                if (one.parts[i].first == first && one.parts[i].count > 0)
                    return Piece{one.parts[i], one.rank, i};
        return std::nullopt;
    };
    for (const std::int64_t step : steps) {
        Whole whole{step, {}};
        std::int64_t end = 0;
        while (end < all) {
            const auto piece = piece_at(step, end);
            if (!piece) break;
            whole.pieces.push_back(*piece);
            end += piece->part.count;
        }
        if (end == all) return whole;
    }
    return std::nullopt;
}

// Some ranks may take a step whose sums failed on others; neither step is then whole. If those can follow, and that makes
// the newest step whole, sets them to it and returns the rank whose sums they follow with; otherwise nullopt.
inline std::optional<std::int64_t> let_follow(std::vector<Holding>& holdings, std::int64_t all) {
    if (holdings.empty()) return std::nullopt;
    const std::int64_t newest = std::ranges::max(holdings, {}, &Holding::step).step;
    const auto is_whole = [&](const std::vector<Holding>& some) {
        const auto whole = newest_whole(some, all);
        return whole && whole->step == newest;
    };
    const auto leader = std::ranges::find_if(
        holdings, [&](const Holding& one) { return one.step == newest && one.can_follow; });
    if (leader == holdings.end() || is_whole(holdings)) return std::nullopt;
    std::vector<Holding> raised = holdings;
    for (Holding& one : raised)
        if (one.step == newest - 1 && one.can_follow) one.step = newest;
    if (!is_whole(raised)) return std::nullopt;
    const std::int64_t rank = leader->rank;
    holdings = std::move(raised);
    return rank;
}

}  // namespace dp::trainer
