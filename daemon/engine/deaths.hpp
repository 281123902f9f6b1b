// SPDX-License-Identifier: Apache-2.0
//
// What happens to a death before it ends the step: it may be held back, awaited, or reported together with
// others. Pure state machines; ending.hpp has how soon a step ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/hostlist.hpp"
#include "dp.pb.h"
#include "engine/ending.hpp"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

struct Death {
    std::string reason;
    GracePeriod grace = kBroken;
    std::vector<uint32_t> ranks = {};   // who is dead then
    std::optional<int> status = {};     // of one rank, as in waitpid(2)
    std::optional<uint64_t> step = {};  // how far its training was
    bool final = false;                 // no restart can follow
    bool of_node = false;
    bool of_survivor = false;  // its process is older than the failure that began the generation (dp_rejoin)
};

// What is held back for a moment.
template <typename Thing>
class Held {
 public:
    void hold(Thing thing, Time until) { held_.emplace_back(until, std::move(thing)); }
    // What has been held long enough, oldest first.
    std::vector<Thing> due(Time now) {
        std::vector<Thing> out;
        for (; !held_.empty() && now >= held_.front().first; held_.pop_front())
            out.push_back(std::move(held_.front().second));
        return out;
    }
    std::optional<Time> next_deadline() const {
        return held_.empty() ? std::nullopt : std::optional(held_.front().first);
    }

 protected:
    std::deque<std::pair<Time, Thing>> held_;  // until when; oldest first
};

// What happens meanwhile may show that these deaths are the step's own end, or that another is the cause.
class HeldDeaths : public Held<Death> {
 public:
    // A rank ended with this status. False: it is not held back, and no held death explains it.
    bool hold_exit(const Death& death, int wait_status, Time now) {
        if (death.grace == kTerminated) {
            hold(death, now + kPoliteDelay);
            return true;
        }
        // It may follow from a held death, so it waits with that one.
        if (!left_by_itself(wait_status) || held_.empty() || held_.front().second.grace != kTerminated)
            return false;
        hold(death, held_.front().first);
        return true;
    }
    std::vector<Death> take_all() { return due(Time::max()); }
};

// A connection that closes without goodbye usually means a death whose exit code is still under way: after
// this time, calls that wait for the rank fail without it.
inline constexpr Time kExitFollows{500};

class VanishedRanks : public Held<uint32_t> {
 public:
    void add(uint32_t rank, Time now) { hold(rank, now + kExitFollows); }
    // It came back, or its exit followed. Returns whether it had vanished.
    bool remove(uint32_t rank) {
        return std::erase_if(held_, [rank](const auto& one) { return one.second == rank; }) > 0;
    }
};

// Deaths after a first one are reported together, at this interval (--dp-on-failure=report).
inline constexpr Time kDeathsTogether{50};

class DeathReports {
 public:
    void add(const Death& death) {
        if (causes_++ == 0) untold_.set_reason(death.reason);
        for (uint32_t rank : death.ranks) untold_.add_ranks(rank);
    }
    // The reports that are due now.
    std::optional<wire::Deaths> take(const Membership& members, Time now) {
        if (causes_ == 0 || now < quiet_until_) return std::nullopt;
        wire::Deaths deaths = std::exchange(untold_, {});
        if (std::exchange(causes_, 0) > 1) {
            std::vector<uint32_t> ranks(deaths.ranks().begin(), deaths.ranks().end());
            std::sort(ranks.begin(), ranks.end());
            deaths.set_reason(name_ranks(ranks) + " (" + members.hosts_of(ranks) + ") died, too; first " +
                              deaths.reason());
        }
        quiet_until_ = now + kDeathsTogether;
        if (told_.reason().empty()) told_.set_reason(deaths.reason());
        told_.mutable_ranks()->MergeFrom(deaths.ranks());
        return deaths;
    }
    // The reports so far, for nodes that come later; without a reason if nobody died.
    const wire::Deaths& told() const { return told_; }
    std::optional<Time> next_deadline() const {
        return causes_ == 0 ? std::nullopt : std::optional(quiet_until_);
    }

 private:
    wire::Deaths untold_;
    size_t causes_ = 0;  // of untold_
    wire::Deaths told_;
    Time quiet_until_{};
};

}  // namespace dp
