// SPDX-License-Identifier: Apache-2.0
//
// One side of the heartbeats between nodes: when to send one, and a failure detector. The broker has one for
// all relays, a relay one for the broker. A peer that is silent for kSilent is suspected, which is reported,
// and taken back when it responds again (a network that stalls, a daemon that was stopped); after the site's
// deadline it is dead. If a whole step is suspended (scontrol suspend), so are its daemons: time that this
// daemon has slept itself counts for nobody. A pure state machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
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
// And at least where ranks may begin on another node: heartbeats would fail to confirm a healthy one in less.
inline constexpr Time kLeastWhereReplaced{3000};
inline Time dead_after(const DaemonConfig& config) {
    const Time site = std::chrono::seconds(config.dead_after_seconds > 0 ? config.dead_after_seconds
                                                                         : kDefaultDeadAfterSeconds);
    return config.settings.outlives_nodes() ? std::max(site, kLeastWhereReplaced) : site;
}

// How long before the broker can declare a node lost the node ends its ranks, where they may begin on another node
// (--dp-spares, --dp-min-nodes). The node counts from when it sent the last heartbeat that the broker says it has
// heard, so that neither a late packet nor a network that fails in one direction lets the ranks live longer.
inline constexpr Time kFencedBefore{2000};
inline Time fenced_after(const DaemonConfig& config) {
    return std::max(dead_after(config) - kFencedBefore, dead_after(config) / 2);
}

class Heartbeats {
 public:
    using Peer = uint32_t;

    explicit Heartbeats(Time dead_after) : dead_after_(dead_after) {}

    // Starts watching a peer and sending heartbeats to it; again: no effect.
    void watch(Peer peer, Time now) {
        if (peers_.empty()) {
            send_at_ = now + kHeartbeat;
            next_news_.reset();
        }
        peers_.try_emplace(peer, State{now, false});
    }
    void forget(Peer peer) {
        peers_.erase(peer);
        notices_.forget(peer);
    }
    void heard(Peer peer, Time now) {
        const auto found = peers_.find(peer);
        if (found == peers_.end()) return;
        const Time silent = now - std::exchange(found->second.last, now);
        if (std::exchange(found->second.suspected, false)) notices_.speaks_again(peer, silent, now);
    }
    // How long a suspected peer has been silent, else 0.
    Time silent_for(Peer peer, Time now) const {
        const auto found = peers_.find(peer);
        return found != peers_.end() && found->second.suspected ? now - found->second.last : Time(0);
    }

    // Call it at next_deadline.
    struct News {
        bool send = false;       // a heartbeat to all that are watched
        bool slept = false;      // this side was late: what was said meanwhile has not been read yet
        std::vector<Peer> dead;  // forgotten with this
        std::optional<SilenceNotices::Notice> notice;
    };
    News check(Time now) {
        News news;
        if (!peers_.empty() && now >= send_at_) {
            news.send = true;
            // A late check means that this side slept: nothing could have been heard.
            const Time slept = now - std::exchange(send_at_, now + kHeartbeat);
            news.slept = slept >= kSilent / 2;
            if (news.slept)
                for (auto& [peer, state] : peers_) state.last = std::min(now, state.last + slept);
        }
        if (news.send || (next_news_ && now >= *next_news_)) {
            next_news_.reset();
            for (auto& [peer, state] : peers_) {
                const Time silent = now - state.last;
                if (silent >= kSilent && !std::exchange(state.suspected, true))
                    notices_.fell_silent(peer, now);
                if (silent >= dead_after_)
                    news.dead.push_back(peer);
                else
                    next_news_ = earlier(next_news_, state.last + (state.suspected ? dead_after_ : kSilent));
            }
            for (Peer peer : news.dead) forget(peer);
        }
        news.notice = notices_.take(now);
        return news;
    }
    std::optional<Time> next_deadline() const {
        const auto notice = notices_.next_deadline();
        return peers_.empty() ? notice : earlier(notice, earlier(send_at_, next_news_));
    }

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
