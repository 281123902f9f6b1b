// SPDX-License-Identifier: Apache-2.0
//
// Judges peers by their silence: after kSilent a suspicion, which is reported and taken back when the peer
// speaks again (a network that stalls, a daemon that was stopped); after the site's deadline a death. If a
// whole step is suspended (scontrol suspend), so are its daemons: time that this daemon has slept itself
// counts for nobody. A pure state machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/time.hpp"

namespace dp {

// How often each side of a connection between nodes sends a heartbeat.
inline constexpr Time kHeartbeat{250};
// Three heartbeats and some: named within a second of the last one.
inline constexpr Time kSilent{800};
// How long to wait for a silent node by default.
inline constexpr uint32_t kDefaultDeadAfterSeconds = 30;

class FailureDetector {
 public:
    using Peer = uint32_t;

    explicit FailureDetector(Time dead_after) : dead_after_(dead_after) {}

    // Starts watching a peer; again: no effect.
    void watch(Peer peer, Time now);
    void forget(Peer peer) { peers_.erase(peer); }
    // It has spoken. Returns how long it was silent, if it had been suspected.
    std::optional<Time> heard(Peer peer, Time now);

    struct News {
        std::vector<Peer> suspected;  // each once a silence
        std::vector<Peer> dead;       // forgotten with this
    };
    // How long a suspected peer has been silent, else 0.
    Time silent_for(Peer peer, Time now) const;
    // Call it at next_check: with each heartbeat of this side, which wakes it anyway, and when a peer has
    // been silent for too long in between.
    News check(Time now);
    std::optional<Time> next_check() const;

 private:
    struct State {
        Time last{};
        bool suspected = false;
    };

    Time dead_after_;
    std::map<Peer, State> peers_;
    std::optional<Time> checked_;
    // When the next suspicion or death is due if nobody speaks until then.
    std::optional<Time> next_news_;
};

}  // namespace dp
