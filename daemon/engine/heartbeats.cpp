// SPDX-License-Identifier: Apache-2.0
#include "engine/heartbeats.hpp"

#include <algorithm>
#include <utility>

namespace dp {

void Heartbeats::watch(Peer peer, Time now) {
    if (peers_.empty()) {
        send_at_ = now + kHeartbeat;
        next_news_.reset();
    }
    peers_.try_emplace(peer, State{now, false});
}

void Heartbeats::forget(Peer peer) {
    peers_.erase(peer);
    notices_.forget(peer);
}

void Heartbeats::heard(Peer peer, Time now) {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    const Time silent = now - std::exchange(found->second.last, now);
    if (std::exchange(found->second.suspected, false)) notices_.speaks_again(peer, silent, now);
}

Time Heartbeats::silent_for(Peer peer, Time now) const {
    const auto found = peers_.find(peer);
    return found != peers_.end() && found->second.suspected ? now - found->second.last : Time(0);
}

Heartbeats::News Heartbeats::check(Time now) {
    News news;
    if (!peers_.empty() && now >= send_at_) {
        news.send = true;
        // A late check means that this side slept: nothing could have been heard.
        const Time slept = now - std::exchange(send_at_, now + kHeartbeat);
        if (slept >= kSilent / 2)
            for (auto& [peer, state] : peers_) state.last = std::min(now, state.last + slept);
    }
    if (news.send || (next_news_ && now >= *next_news_)) {
        next_news_.reset();
        for (auto& [peer, state] : peers_) {
            const Time silent = now - state.last;
            if (silent >= kSilent && !std::exchange(state.suspected, true)) notices_.fell_silent(peer, now);
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

std::optional<Time> Heartbeats::next_deadline() const {
    const auto notice = notices_.next_deadline();
    return peers_.empty() ? notice : earlier(notice, earlier(send_at_, next_news_));
}

}  // namespace dp
