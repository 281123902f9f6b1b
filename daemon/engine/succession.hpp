// SPDX-License-Identifier: Apache-2.0
//
// What an elected broker knows of the one that it follows, and how long it waits for the others (election.hpp).
// Pure; the broker owns it until its first generation begins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/quorum.hpp"
#include "engine/time.hpp"

namespace dp {

// How long it waits for most nodes, and from when it could begin with them.
inline constexpr Time kSuccessionLasts{5000};

// When a lost broker and the nodes that it leaves are over, as one node knows (Candidature).
struct OldWorldEnds {
    Time broker{};  // it has missed this node, and ended its own ranks
    Time nodes{};   // those that have heard from it longest have ended theirs, whether or not they come
};

struct Succession {
    wire::Roll roll;  // the last
    std::string why;  // the last broker is lost
    Time lost_at{};   // when this node saw it
    OldWorldEnds ends;
};

class SuccessionWait {
 public:
    SuccessionWait(Succession from, size_t nodes, Time now)
        : from_(std::move(from)), nodes_(nodes), elected_at_(now), ends_{from_.ends} {}

    const Succession& from() const { return from_; }
    // Another node has come, with nothing left of its ranks.
    void joined(OldWorldEnds ends) {
        ends_.push_back(ends);
        is_due_ = false;
    }
    // When the next generation can begin with the nodes that have come until then; nullopt: they are too few. If all have
    // come but the last broker's, that need only have missed most of them. Else who has not may still have ranks.
    std::optional<Time> begins_at() const {
        if (ends_.size() < Quorum::majority(nodes_)) return std::nullopt;
        return std::max(elected_at_,
                        most(ends_.size() + 1 >= nodes_ ? &OldWorldEnds::broker : &OldWorldEnds::nodes));
    }
    Time fails_at() const { return begins_at().value_or(elected_at_) + kSuccessionLasts; }
    // Begins_at is over, but too few nodes have confirmed that this is their broker: that is looked at as they do.
    void note_due() { is_due_ = true; }
    Time next_deadline() const { return is_due_ ? fails_at() : begins_at().value_or(fails_at()); }

 private:
    Succession from_;
    size_t nodes_;  // of the last roll
    Time elected_at_;
    std::vector<OldWorldEnds> ends_;  // of the nodes that are here
    bool is_due_ = false;

    // When that holds for most nodes.
    Time most(Time OldWorldEnds::*end) const {
        std::vector<Time> times;
        for (const OldWorldEnds& one : ends_) times.push_back(one.*end);
        const auto at = times.begin() + static_cast<ptrdiff_t>(Quorum::majority(nodes_)) - 1;
        std::ranges::nth_element(times, at);
        return *at;
    }
};

}  // namespace dp
