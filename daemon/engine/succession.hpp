// SPDX-License-Identifier: Apache-2.0
//
// What an elected broker knows of the one that it follows, and how long it waits for the others (election.hpp).
// Pure; the broker owns it until its first generation begins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/quorum.hpp"
#include "engine/time.hpp"

namespace dp {

// How long it waits for most nodes to join, and, once the generation could begin, for them to confirm its heartbeats.
inline constexpr Time kSuccessionTimeout{5000};

// When the ranks of a lost broker and of its other nodes must have ended or rejoined, as far as one node can tell (Support).
struct OldWorldEnds {
    Time broker{};  // the broker has noticed the loss of this node and ended its own ranks
    Time nodes{};   // so has every node, even one that heard the broker longest and never joins
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
    // Ranks of the old world whose processes go on in the next one.
    void add_survivors(std::span<const uint32_t> ranks) {
        survivors_.insert(survivors_.end(), ranks.begin(), ranks.end());
    }
    std::span<const uint32_t> survivors() const { return survivors_; }
    // Another node has come, with nothing else left of its ranks.
    void joined(OldWorldEnds ends) {
        ends_.push_back(ends);
        is_due_ = false;
    }
    // When the next generation can begin with the nodes that have joined; nullopt: too few have. If only the last
    // broker's node is missing, it is enough that the old broker must have ended its own ranks. If others are missing,
    // they may still have ranks, so it waits for those to end, too.
    std::optional<Time> begins_at() const {
        if (ends_.size() < Quorum::majority(nodes_)) return std::nullopt;
        return std::max(elected_at_,
                        most(ends_.size() + 1 >= nodes_ ? &OldWorldEnds::broker : &OldWorldEnds::nodes));
    }
    Time fails_at() const { return begins_at().value_or(elected_at_) + kSuccessionTimeout; }
    // begins_at has passed, but too few nodes have confirmed this broker. Each confirmation is checked as it arrives.
    void note_due() { is_due_ = true; }
    Time next_deadline() const { return is_due_ ? fails_at() : begins_at().value_or(fails_at()); }

 private:
    Succession from_;
    size_t nodes_;  // of the last roll
    Time elected_at_;
    std::vector<OldWorldEnds> ends_;  // of the nodes that are here
    std::vector<uint32_t> survivors_;
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
