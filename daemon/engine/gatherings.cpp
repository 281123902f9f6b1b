// SPDX-License-Identifier: Apache-2.0
#include "engine/gatherings.hpp"

#include <algorithm>

namespace dp {

std::set<uint32_t> Gatherings::members_here(const wire::Arrive& meeting) const {
    std::set<uint32_t> here;
    for (uint32_t rank : ranks_)
        if (meeting.members().empty() ||
            std::binary_search(meeting.members().begin(), meeting.members().end(), rank))
            here.insert(rank);
    for (uint32_t rank : ended_) here.erase(rank);
    return here;
}

wire::NodeArrive Gatherings::take(Gathering& gathering, Time now) {
    wire::NodeArrive out = gathering.held;
    out.set_timeout_ms(std::max(Time(0), gathering.deadline - now).count());
    out.set_waited_ms((now - gathering.first).count());
    for (const auto& rank : out.ranks()) gathering.sent.insert({rank.rank(), rank.id()});
    gathering.held.clear_ranks();
    gathering.bytes = 0;
    return out;
}

std::optional<wire::NodeArrive> Gatherings::arrive(Caller caller, const wire::Arrive& arrive, Time now,
                                                   Time timeout) {
    wire::Arrive meeting = arrive;
    meeting.clear_value();
    meeting.clear_facts();
    const std::string key = meeting.SerializeAsString();
    auto [it, fresh] = open_.try_emplace(key);
    Gathering& gathering = it->second;
    if (fresh) {
        gathering.awaited = members_here(meeting);
        gathering.first = now;
        gathering.send_at = now + std::min(kGather, timeout / 2);
        gathering.deadline = now + timeout;
        *gathering.held.mutable_meeting() = std::move(meeting);
    }
    gathering.deadline = std::min(gathering.deadline, now + timeout);
    auto* rank = gathering.held.add_ranks();
    rank->set_rank(caller.rank);
    rank->set_id(caller.id);
    rank->set_value(arrive.value());
    *rank->mutable_facts() = arrive.facts();
    gathering.bytes += rank->ByteSizeLong();
    // The broker decides whether it may come at all, and whether it has come before.
    const bool expected = gathering.awaited.erase(caller.rank) > 0;
    if (!gathering.awaited.empty() && expected && gathering.sent.empty() && gathering.bytes < kMaxGathered)
        return std::nullopt;
    wire::NodeArrive out = take(gathering, now);
    if (gathering.awaited.empty()) open_.erase(it);
    return out;
}

std::vector<wire::NodeArrive> Gatherings::give_up(uint32_t rank, Time now) {
    ended_.insert(rank);
    std::vector<wire::NodeArrive> out;
    for (auto it = open_.begin(); it != open_.end();) {
        auto current = it++;
        Gathering& gathering = current->second;
        if (gathering.awaited.erase(rank) == 0 || !gathering.awaited.empty()) continue;
        if (!gathering.held.ranks().empty()) out.push_back(take(gathering, now));
        open_.erase(current);
    }
    return out;
}

void Gatherings::failed(Caller caller) {
    for (auto it = open_.begin(); it != open_.end(); ++it) {
        Gathering& gathering = it->second;
        if (gathering.sent.erase(caller) == 0) continue;
        if (gathering.sent.empty() && gathering.held.ranks().empty()) open_.erase(it);
        return;
    }
}

void Gatherings::withdraw(uint32_t rank) {
    for (auto it = open_.begin(); it != open_.end();) {
        auto current = it++;
        Gathering& gathering = current->second;
        auto* held = gathering.held.mutable_ranks();
        const auto is_its = [&](const auto& one) { return one.rank() == rank; };
        const auto before = held->size();
        held->erase(std::remove_if(held->begin(), held->end(), is_its), held->end());
        const size_t withdrawn =
            static_cast<size_t>(before - held->size()) +
            std::erase_if(gathering.sent, [&](const Caller& c) { return c.rank == rank; });
        if (withdrawn > 0) gathering.awaited.insert(rank);
        if (gathering.sent.empty() && held->empty()) open_.erase(current);
    }
}

std::vector<wire::NodeArrive> Gatherings::expire(Time now) {
    std::vector<wire::NodeArrive> out;
    for (auto it = open_.begin(); it != open_.end();) {
        auto current = it++;
        Gathering& gathering = current->second;
        if (!gathering.held.ranks().empty()) {
            if (now >= gathering.send_at) out.push_back(take(gathering, now));
        } else if (now >= gathering.deadline) {
            open_.erase(current);  // the broker has answered by now, or nobody is left to hear it
        }
    }
    return out;
}

std::optional<Time> Gatherings::next_deadline() const {
    std::optional<Time> next;
    for (const auto& [key, gathering] : open_)
        if (!gathering.held.ranks().empty()) next = earlier(next, gathering.send_at);
    return next;
}

}  // namespace dp
