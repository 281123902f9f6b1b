// SPDX-License-Identifier: Apache-2.0
//
// The two deadlines of --dp-timeout: every node must connect after the start, and every rank must say hello
// after the first one. Late ones are reported meanwhile. A pure state machine; the broker owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
    void hello(Time at, Time now) {
        if (!first_hello_) next_notice_ = now + (notice_pause_ = kFirstLateNotice);
        // By the rank's own clock, so that a call that it made then ends no earlier than the step.
        first_hello_ = std::clamp(std::min(at, first_hello_.value_or(at)), started_, std::max(started_, now));
    }
    struct Late {
        std::string line;  // who is missing
        bool too_late;     // the deadline is over
    };
    std::optional<Late> check(const Membership& members, Time now) {
        if (complete(members)) return std::nullopt;
        const bool connected = members.all_joined();
        const Time since = connected ? *first_hello_ : started_;
        const bool too_late = now >= since + timeout_;
        if (!too_late && now < next_notice_) return std::nullopt;
        if (!too_late) next_notice_ = now + (notice_pause_ *= 2);
        const std::vector<uint32_t> missing = connected ? members.without_hello() : members.without_node();
        const size_t world = members.ranks().size();
        return Late{
            std::to_string(connected ? members.hellos() : world - missing.size()) + " of " +
                std::to_string(world) + " ranks " + (connected ? "said hello" : "are connected") +
                (too_late ? " within " + words(timeout_) + " (--dp-timeout)"
                          : " after " + std::to_string((now - since).count() / 1000) + " s") +
                "; missing: " +
                (missing.empty() ? members.name_nodes(members.not_joined()) : members.describe(missing)),
            too_late};
    }
    // When too late is; none once all are there.
    std::optional<Time> end(const Membership& members) const {
        if (complete(members)) return std::nullopt;
        return (members.all_joined() ? *first_hello_ : started_) + timeout_;
    }
    std::optional<Time> next_deadline(const Membership& members) const {
        if (complete(members)) return std::nullopt;
        return std::min(next_notice_, *end(members));
    }

 private:
    Time timeout_;
    Time started_;
    std::optional<Time> first_hello_;
    Time next_notice_;
    Time notice_pause_ = kFirstLateNotice;

    // Every node has connected, and once one rank has said hello, all have.
    bool complete(const Membership& members) const {
        return members.all_joined() && (!first_hello_ || members.awaited() == 0);
    }
};

}  // namespace dp
