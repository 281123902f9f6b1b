// SPDX-License-Identifier: Apache-2.0
//
// One side of the heartbeats between nodes: when to send one, and a failure detector. The broker has one for
// all relays, a relay one for the broker. A peer that is silent for kSilent is suspected, which is reported,
// and taken back when it responds again (a network that stalls, a daemon that was stopped); after the site's
// deadline it is dead. If a whole step is suspended (scontrol suspend), so are its daemons: time that this
// daemon has slept itself counts for nobody. A pure state machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/daemon_config.hpp"
#include "engine/notices.hpp"
#include "engine/time.hpp"

namespace dp {

// How often each side of a connection between nodes sends a heartbeat.
inline constexpr Time kHeartbeat{250};
// Three heartbeats and some: named within a second of the last one.
inline constexpr Time kSilent{800};
// How long to wait for a silent node by default.
inline constexpr uint32_t kDefaultDeadAfterSeconds = 30;
inline Time dead_after(const DaemonConfig& config) {
    return std::chrono::seconds(config.dead_after_seconds > 0 ? config.dead_after_seconds
                                                              : kDefaultDeadAfterSeconds);
}

class Heartbeats {
 public:
    using Peer = uint32_t;

    explicit Heartbeats(Time dead_after) : dead_after_(dead_after) {}

    // Starts watching a peer and sending heartbeats to it; again: no effect.
    void watch(Peer peer, Time now);
    void forget(Peer peer);
    void heard(Peer peer, Time now);
    // How long a suspected peer has been silent, else 0.
    Time silent_for(Peer peer, Time now) const;

    // Call it at next_deadline.
    struct News {
        bool send = false;       // a heartbeat to all that are watched
        std::vector<Peer> dead;  // forgotten with this
        std::optional<SilenceNotices::Notice> notice;
    };
    News check(Time now);
    std::optional<Time> next_deadline() const;

 private:
    struct State {
        Time last{};  // when it was heard
        bool suspected = false;
    };

    Time dead_after_;
    std::map<Peer, State> peers_;
    SilenceNotices notices_;
    Time send_at_{};  // while there are peers
    // When the next suspicion or death is due if nobody speaks until then.
    std::optional<Time> next_news_;
};

}  // namespace dp
