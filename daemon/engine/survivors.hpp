// SPDX-License-Identifier: Apache-2.0
//
// The local ranks whose processes go on in the next generation (dp_rejoin, --dp-grace). Pure; the node's engine
// owns it.
//
// While a generation ends, a rank that can rejoin is spared and awaited. Once all that are awaited have come, and all
// others have ended, the broker is told (close), and from then on one that dies does so in the next generation. If the
// broker is lost, so is the generation, and what would have been told to it is told to its successor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/time.hpp"

namespace dp {

class Survivors {
 public:
    // These can rejoin, until then.
    void begin(const std::set<uint32_t>& ranks, Time until) {
        *this = Survivors();
        for (const uint32_t rank : ranks) has_come_[rank] = false;
        until_ = until;
    }
    // The broker is lost: those that have not come by then are no survivors, even if it had been told.
    void begin_without_broker(Time until) {
        until_ = is_closed_ ? until : std::min(until_, until);
        is_closed_ = false;
    }
    // The rank has left the generation that ends.
    void come(uint32_t rank) {
        if (const auto found = has_come_.find(rank); found != has_come_.end()) found->second = true;
    }
    // It has died or closed its world. Returns whether it is to be ended as one that cannot rejoin.
    bool drop(uint32_t rank) { return !is_closed_ && has_come_.erase(rank) > 0; }
    // Those that have not come in time are no survivors.
    std::vector<uint32_t> drop_late(Time now) {
        std::vector<uint32_t> late;
        if (is_closed_ || now < until_) return late;
        for (const auto& [rank, came] : has_come_)
            if (!came) late.push_back(rank);
        for (const uint32_t rank : late) has_come_.erase(rank);
        return late;
    }
    // The broker is told: from now on only those that have come are survivors.
    void close() {
        std::erase_if(has_come_, [](const auto& one) { return !one.second; });
        is_closed_ = true;
    }

    bool has(uint32_t rank) const { return has_come_.contains(rank); }
    bool has_come(uint32_t rank) const {
        const auto found = has_come_.find(rank);
        return found != has_come_.end() && found->second;
    }
    bool is_closed() const { return is_closed_; }
    std::vector<uint32_t> ranks() const {
        std::vector<uint32_t> out;
        for (const auto& [rank, came] : has_come_) out.push_back(rank);
        return out;
    }
    std::optional<Time> next_deadline() const {
        const bool awaits = std::ranges::any_of(has_come_, [](const auto& one) { return !one.second; });
        return awaits && !is_closed_ ? std::optional(until_) : std::nullopt;
    }

 private:
    std::map<uint32_t, bool> has_come_;  // by rank of the generation that ends
    Time until_{};
    bool is_closed_ = false;
};

}  // namespace dp
