// SPDX-License-Identifier: Apache-2.0
//
// Peers that should be heard all the time, and what their silence means: after kSilent a suspicion, which is
// named and taken back when the peer speaks again (a network that stalls, a daemon that was stopped); after
// the site's deadline a death. A step that is suspended as a whole (scontrol suspend) stops its daemons, too:
// time that this daemon has slept itself counts for nobody. A pure state machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/time.hpp"

namespace dp {

// How often each side of a connection between nodes says that it is there.
inline constexpr Time kHeartbeat{250};
// Three heartbeats and some: named within a second of the last one.
inline constexpr Time kSilent{800};
// How long a silent node is waited for where the site says nothing else.
inline constexpr uint32_t kDefaultDeadAfterSeconds = 30;

class FailureDetector {
 public:
    using Peer = uint32_t;

    explicit FailureDetector(Time dead_after) : dead_after_(dead_after) {}

    // From now on it is listened for; again: no effect.
    void watch(Peer peer, Time now);
    void forget(Peer peer) { peers_.erase(peer); }
    // It has spoken. → where it had been suspected: how long it was silent.
    std::optional<Time> heard(Peer peer, Time now);

    struct News {
        std::vector<Peer> suspected;  // each once a silence
        std::vector<Peer> dead;       // forgotten with this
    };
    // Of a suspected one, else 0.
    Time silent_for(Peer peer, Time now) const;
    // To be called at next_check: with each heartbeat of this side, which wakes it anyway, and when a peer has
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
    // When the next suspicion or death would be, had nobody spoken since the last check.
    std::optional<Time> next_news_;
};

}  // namespace dp
