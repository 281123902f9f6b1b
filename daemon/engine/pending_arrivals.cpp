// SPDX-License-Identifier: Apache-2.0
#include "engine/pending_arrivals.hpp"

#include <algorithm>

namespace dp {

std::set<uint32_t> PendingArrivals::members_here(const wire::Arrive& collective) const {
    std::set<uint32_t> here;
    for (uint32_t rank : ranks_)
        if (collective.members().empty() ||
            std::binary_search(collective.members().begin(), collective.members().end(), rank))
            here.insert(rank);
    for (uint32_t rank : ended_) here.erase(rank);
    return here;
}

wire::NodeArrive PendingArrivals::take(Pending& pending, Time now) {
    wire::NodeArrive out = pending.held;
    out.set_timeout_ms(std::max(Time(0), pending.deadline - now).count());
    out.set_waited_ms((now - pending.first).count());
    pending.sent = true;
    pending.held.clear_ranks();
    pending.bytes = 0;
    return out;
}

std::optional<wire::NodeArrive> PendingArrivals::arrive(Caller caller, const wire::Arrive& arrive, Time now,
                                                        Time timeout) {
    wire::Arrive collective = arrive;
    collective.clear_value();
    collective.clear_facts();
    const std::string key = collective.SerializeAsString();
    auto [it, fresh] = open_.try_emplace(key);
    Pending& pending = it->second;
    if (fresh) {
        pending.awaited = members_here(collective);
        pending.first = now;
        pending.send_at = now + std::min(kArrivalBatch, timeout / 2);
        pending.deadline = now + timeout;
        *pending.held.mutable_meeting() = std::move(collective);
    }
    pending.deadline = std::min(pending.deadline, now + timeout);
    auto* rank = pending.held.add_ranks();
    rank->set_rank(caller.rank);
    rank->set_id(caller.id);
    rank->set_value(arrive.value());
    *rank->mutable_facts() = arrive.facts();
    pending.bytes += rank->ByteSizeLong();
    // The broker decides whether it may come at all, and whether it has come before.
    const bool expected = pending.awaited.erase(caller.rank) > 0;
    if (!pending.awaited.empty() && expected && !pending.sent && pending.bytes < kMaxPendingBytes)
        return std::nullopt;
    wire::NodeArrive out = take(pending, now);
    if (pending.awaited.empty()) open_.erase(it);
    return out;
}

std::vector<wire::NodeArrive> PendingArrivals::give_up(uint32_t rank, Time now) {
    ended_.insert(rank);
    std::vector<wire::NodeArrive> out;
    for (auto it = open_.begin(); it != open_.end();) {
        Pending& pending = it->second;
        const bool complete = pending.awaited.erase(rank) > 0 && pending.awaited.empty();
        if (complete && !pending.held.ranks().empty()) out.push_back(take(pending, now));
        it = complete ? open_.erase(it) : std::next(it);
    }
    return out;
}

void PendingArrivals::withdraw(uint32_t rank) {
    for (auto it = open_.begin(); it != open_.end();) {
        Pending& pending = it->second;
        auto* held = pending.held.mutable_ranks();
        const auto is_its = [&](const auto& one) { return one.rank() == rank; };
        held->erase(std::remove_if(held->begin(), held->end(), is_its), held->end());
        if (members_here(pending.held.meeting()).contains(rank)) pending.awaited.insert(rank);
        it = held->empty() && !pending.sent ? open_.erase(it) : std::next(it);
    }
}

std::vector<wire::NodeArrive> PendingArrivals::expire(Time now) {
    std::vector<wire::NodeArrive> out;
    // All is sent: the broker has answered by now, or nobody is left to hear it.
    std::erase_if(open_, [now](const auto& open) {
        return open.second.held.ranks().empty() && now >= open.second.deadline;
    });
    for (auto& [key, pending] : open_)
        if (!pending.held.ranks().empty() && now >= pending.send_at) out.push_back(take(pending, now));
    return out;
}

std::optional<Time> PendingArrivals::next_deadline() const {
    std::optional<Time> next;
    for (const auto& [key, pending] : open_)
        if (!pending.held.ranks().empty()) next = earlier(next, pending.send_at);
    return next;
}

}  // namespace dp
