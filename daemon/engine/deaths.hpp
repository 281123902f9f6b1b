// SPDX-License-Identifier: Apache-2.0
//
// What happens to a death before it ends the step: it may be held back, awaited, or reported together with
// others. Pure state machines; ending.hpp has how soon a step ends.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp.pb.h"
#include "engine/ending.hpp"
#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

struct Death {
    std::string reason;
    GracePeriod grace = kBroken;
    std::vector<uint32_t> ranks = {};  // who is dead then
};

// Deaths that are held back for a moment: what happens meanwhile may show that they are the step's own end,
// or that another one is the cause.
class HeldDeaths {
 public:
    void hold(Death death, Time until) { held_.emplace_back(until, std::move(death)); }
    // A rank ended with this status. False: it is not held back, and no held death explains it.
    bool hold_exit(const Death& death, int wait_status, Time now);
    // The deaths that have been held long enough, oldest first.
    std::vector<Death> due(Time now);
    std::vector<Death> take_all() { return due(Time::max()); }
    std::optional<Time> next_deadline() const {
        return held_.empty() ? std::nullopt : std::optional(held_.front().first);
    }

 private:
    std::deque<std::pair<Time, Death>> held_;  // until when; oldest first
};

// A connection that closes without goodbye usually means a death whose exit code is still under way: after
// this time, calls that wait for the rank fail without it.
inline constexpr Time kExitFollows{500};

class VanishedRanks {
 public:
    void add(uint32_t rank, Time now) { until_.emplace_back(now + kExitFollows, rank); }
    // It came back, or its exit followed. Returns whether it had vanished.
    bool remove(uint32_t rank);
    // The ranks whose exit has not followed in time.
    std::vector<uint32_t> expire(Time now);
    std::optional<Time> next_deadline() const {
        return until_.empty() ? std::nullopt : std::optional(until_.front().first);
    }

 private:
    std::deque<std::pair<Time, uint32_t>> until_;  // oldest first
};

// Deaths after a first one are reported together, at this interval (--dp-on-failure=report).
inline constexpr Time kDeathsTogether{50};

class DeathReports {
 public:
    void add(const Death& death);
    // The reports that are due now.
    std::optional<wire::Deaths> take(const Membership& members, Time now);
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
