// SPDX-License-Identifier: Apache-2.0
#include "engine/start_deadlines.hpp"

#include <algorithm>
#include <vector>

namespace dp {

void StartDeadlines::hello(Time at, Time now) {
    if (!first_hello_) next_notice_ = now + (notice_pause_ = kFirstLateNotice);
    // By the rank's own clock, so that a call that it made then ends no earlier than the step.
    first_hello_ = std::clamp(std::min(at, first_hello_.value_or(at)), started_, std::max(started_, now));
}

// Every node has connected, and once one rank has said hello, all have.
bool StartDeadlines::complete(const Membership& members) const {
    return members.all_joined() && (!first_hello_ || members.awaited() == 0);
}

std::optional<StartDeadlines::Late> StartDeadlines::check(const Membership& members, Time now) {
    if (complete(members)) return std::nullopt;
    const size_t world = members.ranks().size();
    const std::string of = " of " + std::to_string(world) + " ranks ";
    if (members.all_joined())
        return await(std::to_string(members.hellos()) + of + "said hello", *first_hello_, members,
                     members.without_hello(), now);
    std::vector<uint32_t> absent;
    for (uint32_t rank = 0; rank < world; ++rank)
        if (!members.ranks()[rank].node) absent.push_back(rank);
    return await(std::to_string(world - absent.size()) + of + "are connected", started_, members, absent,
                 now);
}

std::optional<StartDeadlines::Late> StartDeadlines::await(const std::string& there, Time since,
                                                          const Membership& members,
                                                          std::span<const uint32_t> late, Time now) {
    if (now >= since + timeout_)
        return Late{
            there + " within " + words(timeout_) + " (--dp-timeout); missing: " + members.describe(late),
            true};
    if (now < next_notice_) return std::nullopt;
    next_notice_ = now + (notice_pause_ *= 2);
    return Late{there + " after " + std::to_string((now - since).count() / 1000) +
                    " s; missing: " + members.describe(late),
                false};
}

std::optional<Time> StartDeadlines::next_deadline(const Membership& members) const {
    if (complete(members)) return std::nullopt;
    return std::min(next_notice_, (members.all_joined() ? *first_hello_ : started_) + timeout_);
}

}  // namespace dp
