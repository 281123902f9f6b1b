// SPDX-License-Identifier: Apache-2.0
#include "engine/deaths.hpp"

#include <algorithm>

#include "common/hostlist.hpp"

namespace dp {

bool HeldDeaths::hold_exit(const Death& death, int wait_status, Time now) {
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

void DeathReports::add(const Death& death) {
    if (causes_++ == 0) untold_.set_reason(death.reason);
    for (uint32_t rank : death.ranks) untold_.add_ranks(rank);
}

std::optional<wire::Deaths> DeathReports::take(const Membership& members, Time now) {
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

}  // namespace dp
