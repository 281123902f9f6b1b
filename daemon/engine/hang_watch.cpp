// SPDX-License-Identifier: Apache-2.0
#include "engine/hang_watch.hpp"

#include <algorithm>
#include <iterator>

#include "base/text.hpp"
#include "common/hostlist.hpp"

namespace dp {
namespace {

// Places that a line names; dpctl stacks has them all.
constexpr size_t kMostPlaces = 3;

std::vector<uint32_t> without(const std::vector<uint32_t>& ranks, const std::vector<uint32_t>& others) {
    std::vector<uint32_t> rest;
    std::ranges::set_difference(ranks, others, std::back_inserter(rest));
    return rest;
}

std::string who(const std::vector<uint32_t>& ranks, const Membership& members) {
    return name_ranks(ranks) + " on " + members.hosts_of(ranks);
}

}  // namespace

void HangWatch::note(uint32_t rank, const wire::Stillness& said, Time now) {
    still_[rank] = {now - clamped(said.for_ms()), said.waits_for_others(), printable(said.where(), kMaxWhere),
                    said.place()};
}

std::optional<Time> HangWatch::moves(uint32_t rank, Time now) {
    still_.erase(rank);
    if (!hangs_since_) return std::nullopt;
    return now - *std::exchange(hangs_since_, std::nullopt);
}

// The largest of the groups whose ranks are at one place.
std::vector<uint32_t> HangWatch::alike(const std::vector<uint32_t>& ranks) const {
    std::map<uint64_t, std::vector<uint32_t>> groups;
    for (const uint32_t rank : ranks) groups[still_.at(rank).place].push_back(rank);
    const auto largest =
        std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.size(); });
    return largest == groups.end() ? std::vector<uint32_t>() : largest->second;
}

// "rank 3 on node02 is in load_batch (train.py:88)", those that are at one place together.
std::string HangWatch::places_of(const std::vector<uint32_t>& ranks, const Membership& members) const {
    std::string out;
    std::vector<uint32_t> left = ranks;
    for (size_t told = 0; !left.empty() && told < kMostPlaces; ++told) {
        const std::vector<uint32_t> group = alike(left);
        const Still& first = still_.at(group.front());
        const bool is_one = group.size() == 1;
        out += (told > 0 ? "; " : "") + who(group, members);
        out += first.waits_for_others ? (is_one ? " waits in " : " wait in ")
                                      : (is_one ? " is in " : " are in ");
        out += first.where;
        left = without(left, group);
    }
    return out + (left.empty() ? "" : "; " + plural(left.size(), "other") + " elsewhere");
}

std::optional<HangWatch::Hang> HangWatch::take(const Membership& members, Time timeout, Time now) {
    if (is_judged_later_ && now < last_end_ + timeout) return std::nullopt;
    is_judged_later_ = false;
    if (hangs_since_ || still_.empty() || still_.size() < members.living()) return std::nullopt;
    std::vector<uint32_t> living, waiting, have_ended;
    Time last_moved = last_end_;
    for (uint32_t rank = 0; rank < members.ranks().size(); ++rank) {
        if (members.ranks()[rank].has_exited()) {
            have_ended.push_back(rank);
            continue;
        }
        const auto still = still_.find(rank);
        if (still == still_.end()) return std::nullopt;
        living.push_back(rank);
        if (still->second.waits_for_others) waiting.push_back(rank);
        last_moved = std::max(last_moved, still->second.since);
    }
    hangs_since_ = last_moved;
    const std::string beginning = "no progress for " + words(now - last_moved) + " (--dp-hang-timeout): ";
    if (waiting == living && !have_ended.empty())
        return Hang{
            beginning + who(have_ended, members) + " ended before the others; " + places_of(living, members),
            have_ended};
    // Some wait for the others; or else most are at one place.
    const std::vector<uint32_t> most = waiting.empty() || waiting == living ? alike(living) : waiting;
    const std::vector<uint32_t> culprits = without(living, most);
    if (culprits.empty() || (most != waiting && most.size() <= culprits.size()))
        return Hang{beginning + "which rank is the cause cannot be told: " + places_of(living, members), {}};
    return Hang{beginning + places_of(culprits, members) + "; " + places_of(most, members), culprits};
}

}  // namespace dp
