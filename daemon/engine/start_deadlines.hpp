// SPDX-License-Identifier: Apache-2.0
//
// The two deadlines of --dp-timeout: every node connects after the start, every rank says hello after the
// first one. Who is late is named meanwhile. A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// How long after the first sign of life it is said who is missing; each next time after a pause twice as
// long.
inline constexpr Time kFirstLateNotice{5000};

class StartDeadlines {
 public:
    StartDeadlines(Time timeout, Time started)
        : timeout_(timeout), started_(started), next_notice_(started + kFirstLateNotice) {}

    // A rank has said hello; `at` is when, which is before it came here.
    void hello(Time at, Time now);
    struct Late {
        std::string line;  // who is missing
        bool too_late;     // the deadline is over
    };
    std::optional<Late> check(const Membership& members, Time now);
    std::optional<Time> next_deadline(const Membership& members) const;

    Time started() const { return started_; }

 private:
    Time timeout_;
    Time started_;
    std::optional<Time> first_hello_;
    Time next_notice_;
    Time notice_pause_ = kFirstLateNotice;

    bool complete(const Membership& members) const;
    std::optional<Late> await(const std::string& there, Time since, const Membership& members,
                              std::span<const uint32_t> late, Time now);
};

}  // namespace dp
