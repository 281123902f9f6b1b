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

// A rank's parts of the state, all as they were after `step`. The parts of all ranks come from one partition; some are
// held by several.
struct Holding {
    std::int64_t rank;
    std::int64_t step;
    std::vector<Shard> parts;
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

// The newest step at which the parts make `all` numbers; of each the lowest rank that has it. `holdings`: by rank.
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

}  // namespace dp::trainer
