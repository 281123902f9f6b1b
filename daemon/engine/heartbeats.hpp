// SPDX-License-Identifier: Apache-2.0
//
// One side of the heartbeats between nodes: when to send one, whose are missing, and when to report that. The
// broker has one for all relays, a relay one for the broker. A pure state machine.
#pragma once

#include <optional>
#include <vector>

#include "engine/failure_detector.hpp"
#include "engine/notices.hpp"

namespace dp {

class Heartbeats {
 public:
    using Peer = FailureDetector::Peer;

    explicit Heartbeats(Time dead_after) : detector_(dead_after) {}

    // Starts watching a peer and sending heartbeats to it; again: no effect.
    void watch(Peer peer, Time now);
    void forget(Peer peer);
    void heard(Peer peer, Time now);
    // How long a suspected peer has been silent, else 0.
    Time silent_for(Peer peer, Time now) const { return detector_.silent_for(peer, now); }

    // Call it at next_deadline.
    struct News {
        bool send = false;       // a heartbeat to all that are watched
        std::vector<Peer> dead;  // forgotten with this
        std::optional<SilenceNotices::Notice> notice;
    };
    News check(Time now);
    std::optional<Time> next_deadline() const;

 private:
    FailureDetector detector_;
    SilenceNotices notices_;
    std::optional<Time> send_at_;
};

}  // namespace dp
