// SPDX-License-Identifier: Apache-2.0
//
// Whether the broker of a step that outlives its nodes (--dp-spares, --dp-min-nodes) may go on. Part of the nodes may
// have lost it without its knowing, and elected another (election.hpp). Pure; the broker owns it.
//
// The broker tells its nodes of each other by numbered rolls, one with each plan and one after a loss that ends no
// generation. The rules, by which no two brokers act at a time:
//
//   the broker acts      while at least half of the roll's nodes, its own included, confirm its heartbeats. Until the
//                        roll is settled, it needs at least as many as the roll before needed
//   a roll is settled    once that many nodes know it: the rest are too few to elect a broker by the roll before
//   an election          takes more than half of a settled roll's nodes, none of which knows a later roll. Until its
//                        own first roll is settled, the elected broker needs that many, too
//
// A node that has lost the broker confirms nothing more, and ends its ranks, or has them wait for the next generation,
// before it takes part in an election. The elected broker waits until the lost one must have noticed that most nodes are
// gone. If a node has not joined, it waits until that node must have noticed the loss of the old broker, too
// (succession.hpp). A roll is what group communication systems call a view (Viewstamped Replication).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "common/daemon_config.hpp"
#include "engine/time.hpp"

namespace dp {

// How old confirmations usually are: two heartbeats (heartbeats.hpp).
inline constexpr Time kUsualDoubt{500};
// How long it takes, after a lost broker has lost most of its nodes, until its ranks and those of nodes that still hear
// it have ended. First: their connections closed, which the broker sees, too. Second: it fell silent (it checks once
// per heartbeat, and those nodes may trust it for another kUsualDoubt).
inline constexpr Time kEndsAfterClosing{500};
inline constexpr Time kEndsAfterSilence{1250};
// How long processes may take at most to rejoin (dp_rejoin) when the broker has fallen silent, before they are killed.
inline constexpr Time kRejoinsWithoutBroker{1000};
inline Time rejoins_without_broker(const DaemonConfig& config) {
    return std::min<Time>(config.settings.grace(), kRejoinsWithoutBroker);
}

class Quorum {
 public:
    // Half, rounded up: enough to go on. Majority: more than all the others together.
    static size_t half(size_t nodes) { return (nodes + 1) / 2; }
    static size_t majority(size_t nodes) { return nodes / 2 + 1; }

    // The next roll: these nodes, without the broker's own.
    void begin(std::span<const uint32_t> nodes, Time now) {
        // One is the broker, which knows.
        of_last_ = nodes_ == 0 || needed() == 1 ? 0 : needed();
        nodes_ = nodes.size() + 1;
        knowing_.clear();
        std::map<uint32_t, Time> confirmed;
        for (const uint32_t node : nodes) {
            const auto before = confirmed_.find(node);
            confirmed[node] = before == confirmed_.end() ? now : before->second;
        }
        confirmed_ = std::move(confirmed);
    }
    // This node was elected by a roll of so many nodes. They join one by one and have yet to confirm its heartbeats.
    void elect(size_t of_nodes) {
        of_last_ = majority(of_nodes);
        nodes_ = of_nodes;
    }
    // One more of them.
    void join(uint32_t node) { confirmed_.try_emplace(node, Time::min()); }
    // The node has heard what the broker sent then.
    void confirm(uint32_t node, Time sent) {
        if (const auto found = confirmed_.find(node); found != confirmed_.end())
            found->second = std::max(found->second, sent);
    }
    // The node knows this roll. Returns whether that has settled it.
    bool note_known_by(uint32_t node) {
        if (is_settled() || !confirmed_.contains(node)) return false;
        knowing_.insert(node);
        if (knowing_.size() + 1 < of_last_) return false;
        of_last_ = 0;
        return true;
    }
    void lose(uint32_t node) { confirmed_.erase(node); }
    bool is_settled() const { return of_last_ == 0; }
    // How many nodes, with its own, are to know this roll until it is.
    size_t settled_by() const { return of_last_; }

    size_t nodes() const { return nodes_; }
    size_t needed() const { return std::max(half(nodes_), of_last_); }
    // How many nodes, its own included, have confirmed a heartbeat that was sent at `then` or later.
    size_t confirmed_since(Time then) const {
        return 1 + static_cast<size_t>(std::ranges::count_if(
                       confirmed_, [&](const auto& node) { return node.second >= then; }));
    }
    // When it last sent what enough nodes have confirmed; a long time ago where there are too few of them.
    Time last_confirmed(Time now) const {
        if (needed() <= 1) return now;
        std::vector<Time> times;
        for (const auto& [node, time] : confirmed_) times.push_back(time);
        if (times.size() + 1 < needed()) return Time::min();
        const auto last = times.begin() + static_cast<ptrdiff_t>(needed()) - 2;
        std::ranges::nth_element(times, last, std::greater());
        return std::min(*last, now);
    }

 private:
    size_t nodes_ = 0;    // of the roll
    size_t of_last_ = 0;  // how many the last roll needed, until this one is settled
    std::set<uint32_t> knowing_;
    std::map<uint32_t, Time> confirmed_;  // when the broker sent what the node has confirmed last
};

}  // namespace dp
