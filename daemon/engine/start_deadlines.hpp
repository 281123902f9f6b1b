// SPDX-License-Identifier: Apache-2.0
//
// The two deadlines of --dp-timeout: every node must connect after the start, and every rank must say hello
// after the first one. Late ones are reported meanwhile. A pure state machine; the broker owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/membership.hpp"
#include "engine/time.hpp"

namespace dp {

// Missing ranks are named this long after the first sign of life; the pauses between later notices double.
inline constexpr Time kFirstLateNotice{5000};

class StartDeadlines {
 public:
    StartDeadlines(Time timeout, Time started)
        : timeout_(timeout), started_(started), next_notice_(started + kFirstLateNotice) {}

    // A rank has said hello; `at` is when, before the message arrived here.
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
};

}  // namespace dp
