// SPDX-License-Identifier: Apache-2.0
//
// What the broker does with a death before it is the end of the step: it may be held back, awaited, or told
// together with others. Pure state machines; see ending.hpp for how soon a step ends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
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
    GracePeriod grace;
    std::vector<uint32_t> ranks;  // who is dead then
};

// Held back for a moment: what happens meanwhile may show that they are the step's own end, or that another
// one is the cause.
class HeldDeaths {
 public:
    void hold(Death death, Time until) { held_.emplace_back(until, std::move(death)); }
    // Of a rank that ended with this status. False: it is not held back, and what is held is no reason for
    // it.
    bool hold_exit(const Death& death, int wait_status, Time now);
    // The oldest that have been held for long enough.
    std::vector<Death> due(Time now);
    std::vector<Death> take_all() { return due(Time::max()); }
    std::optional<Time> next_deadline() const;

 private:
    std::deque<std::pair<Time, Death>> held_;  // until when; oldest first
};

// A connection that closed without goodbye is most often a death whose exit code is still on its way: this
// long it may take until calls that wait for the rank fail without it.
inline constexpr Time kExitFollows{500};

class VanishedRanks {
 public:
    void add(uint32_t rank, Time now);
    // It came back, or its exit followed. → whether it had vanished.
    bool remove(uint32_t rank) { return until_.erase(rank) > 0; }
    // Those whose exit has not followed.
    std::vector<uint32_t> expire(Time now);
    std::optional<Time> next_deadline() const;

 private:
    std::map<uint32_t, Time> until_;
    std::deque<std::pair<Time, uint32_t>> order_;  // also of those that were removed
};

// Deaths that follow a first one are told together, so often (--dp-on-failure=report).
inline constexpr Time kDeathsTogether{50};

class DeathReports {
 public:
    void add(const Death& death);
    // What is to be told now.
    std::optional<wire::Deaths> take(const Membership& members, Time now);
    // What was told so far, for nodes that come later; without a reason where nobody died.
    const wire::Deaths& told() const { return told_; }
    std::optional<Time> next_deadline() const;

 private:
    wire::Deaths untold_;
    size_t causes_ = 0;  // of untold_
    wire::Deaths told_;
    Time quiet_until_{};
};

}  // namespace dp
