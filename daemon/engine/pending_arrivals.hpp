// SPDX-License-Identifier: Apache-2.0
//
// Collects the ranks of one node that arrive at a collective: one message goes to the broker with the node's
// last, without whom the collective cannot happen, so that nobody waits longer. If some are late, the others
// are announced after kArrivalBatch: the broker can name the missing. Pure; the node's engine owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/answers.hpp"
#include "engine/time.hpp"

namespace dp {

inline constexpr Time kArrivalBatch{20};
// The most bytes held for one message; the largest value that may be added still fits a frame.
inline constexpr size_t kMaxPendingBytes = size_t{1} << 20;

class PendingArrivals {
 public:
    // `ranks`: of this node.
    explicit PendingArrivals(std::vector<uint32_t> ranks) : ranks_(std::move(ranks)) {}

    // One of them has arrived. Returns what to send, if anything; likewise below.
    std::optional<wire::NodeArrive> arrive(Caller caller, const wire::Arrive& arrive, Time now,
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
    // The rank has ended: stop waiting for it.
    std::vector<wire::NodeArrive> give_up(uint32_t rank, Time now) {
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
    // The process that arrived is gone, and the rank may come again.
    void withdraw(uint32_t rank) {
        for (auto it = open_.begin(); it != open_.end();) {
            Pending& pending = it->second;
            auto* held = pending.held.mutable_ranks();
            const auto is_its = [&](const auto& one) { return one.rank() == rank; };
            held->erase(std::remove_if(held->begin(), held->end(), is_its), held->end());
            if (members_here(pending.held.meeting()).contains(rank)) pending.awaited.insert(rank);
            it = held->empty() && !pending.sent ? open_.erase(it) : std::next(it);
        }
    }
    std::vector<wire::NodeArrive> expire(Time now) {
        std::vector<wire::NodeArrive> out;
        // All is sent: the broker has answered by now, or nobody is left to hear it.
        std::erase_if(open_, [now](const auto& open) {
            return open.second.held.ranks().empty() && now >= open.second.deadline;
        });
        for (auto& [key, pending] : open_)
            if (!pending.held.ranks().empty() && now >= pending.send_at) out.push_back(take(pending, now));
        return out;
    }
    std::optional<Time> next_deadline() const {
        std::optional<Time> next;
        for (const auto& [key, pending] : open_)
            if (!pending.held.ranks().empty()) next = earlier(next, pending.send_at);
        return next;
    }

 private:
    struct Pending {
        wire::NodeArrive held;       // not sent yet
        std::set<uint32_t> awaited;  // members on this node that have not come
        size_t bytes = 0;            // of held
        bool sent = false;           // some were: whoever is late follows at once
        Time first{};
        Time send_at{};
        Time deadline{};
    };

    std::vector<uint32_t> ranks_;
    std::set<uint32_t> ended_;
    std::map<std::string, Pending> open_;  // by the collective, serialized

    std::set<uint32_t> members_here(const wire::Arrive& collective) const {
        std::set<uint32_t> here;
        for (uint32_t rank : ranks_)
            if (collective.members().empty() ||
                std::binary_search(collective.members().begin(), collective.members().end(), rank))
                here.insert(rank);
        for (uint32_t rank : ended_) here.erase(rank);
        return here;
    }
    static wire::NodeArrive take(Pending& pending, Time now) {
        wire::NodeArrive out = pending.held;
        out.set_timeout_ms(std::max(Time(0), pending.deadline - now).count());
        out.set_waited_ms((now - pending.first).count());
        pending.sent = true;
        pending.held.clear_ranks();
        pending.bytes = 0;
        return out;
    }
};

}  // namespace dp
