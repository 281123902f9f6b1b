// SPDX-License-Identifier: Apache-2.0
//
// --dp-preflight=full: the links between nodes are measured in rounds, in each of which a node has at most one partner. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/time.hpp"
#include "findings/link_check.hpp"

namespace dp {

// So many partners tell a bad link from a good one; with more nodes not all pairs are measured.
inline constexpr uint32_t kMostRounds = 32;
// A node that has measured nothing by then counts as one without that link.
inline constexpr Time kRoundPatience{5000};
// No round begins later than this after the first one, so that many bad links do not hold up a step for long.
inline constexpr Time kAllRounds{40000};

class LinkRounds {
 public:
    struct Place {
        uint32_t node = 0;  // its rank
        std::string address;
        uint16_t port = 0;
        uint64_t token = 0;
    };
    using Message = std::pair<uint32_t, wire::MeasureLink>;  // to that node

    explicit LinkRounds(std::vector<Place> places) : places_(std::move(places)) {}

    // The next round's; none if there is no other round.
    std::vector<Message> begin(Time now);
    void note(uint32_t node, const wire::MeasuredLink& measured);
    // Whether the round is over.
    bool is_over(Time now) const { return awaited_.empty() || now >= until_; }
    std::optional<Time> next_deadline() const {
        return awaited_.empty() ? std::nullopt : std::optional(until_);
    }
    // By index of their places.
    const std::vector<doctor::Link>& links() const { return links_; }
    uint32_t rounds() const;
    const std::vector<Place>& places() const { return places_; }

 private:
    std::vector<Place> places_;
    uint32_t round_ = 0;  // that begins next
    std::optional<Time> began_;
    Time until_{};
    struct Awaited {
        uint32_t from = 0, to = 0;  // places: who measures, with whom
        bool has_measured = false, has_served = false;
    };
    std::vector<Awaited> awaited_;
    std::vector<doctor::Link> links_;
};

}  // namespace dp
