// SPDX-License-Identifier: Apache-2.0
//
// Collects the ranks of one node that arrive at a collective: one message goes to the broker with the node's
// last, without whom the collective cannot happen, so that nobody waits longer. If some are late, the others
// are announced after kArrivalBatch: the broker can name the missing. Pure; the node's engine owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/answers.hpp"
#include "engine/time.hpp"

namespace dp {

inline constexpr Time kArrivalBatch{20};
// The most bytes held for one message; the largest value that may be added still fits a frame.
inline constexpr size_t kMaxPendingBytes = size_t{1} << 20;

class PendingArrivals {
 public:
    // `ranks`: of this node.
    explicit PendingArrivals(std::vector<uint32_t> ranks) : ranks_(std::move(ranks)) {}

    // One of them has arrived. Returns what to send, if anything; likewise below.
    std::optional<wire::NodeArrive> arrive(Caller caller, const wire::Arrive& arrive, Time now, Time timeout);
    // The rank has ended: stop waiting for it.
    std::vector<wire::NodeArrive> give_up(uint32_t rank, Time now);
    // The process that arrived is gone, and the rank may come again.
    void withdraw(uint32_t rank);
    std::vector<wire::NodeArrive> expire(Time now);
    std::optional<Time> next_deadline() const;

 private:
    struct Pending {
        wire::NodeArrive held;       // not sent yet
        std::set<uint32_t> awaited;  // members on this node that have not come
        size_t bytes = 0;            // of held
        bool sent = false;           // some were: whoever is late follows at once
        Time first{};
        Time send_at{};
        Time deadline{};
    };

    std::vector<uint32_t> ranks_;
    std::set<uint32_t> ended_;
    std::map<std::string, Pending> open_;  // by the collective, serialized

    std::set<uint32_t> members_here(const wire::Arrive& collective) const;
    static wire::NodeArrive take(Pending& pending, Time now);
};

}  // namespace dp
