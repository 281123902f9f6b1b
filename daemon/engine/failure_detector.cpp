// SPDX-License-Identifier: Apache-2.0
#include "engine/failure_detector.hpp"

#include <algorithm>
#include <utility>

namespace dp {

void FailureDetector::watch(Peer peer, Time now) {
    if (peers_.empty()) {
        checked_ = now;
        next_news_.reset();
    }
    peers_.try_emplace(peer, State{now, false});
}

std::optional<Time> FailureDetector::heard(Peer peer, Time now) {
    auto found = peers_.find(peer);
    if (found == peers_.end()) return std::nullopt;
    State& state = found->second;
    const Time silent = now - state.last;
    const bool was_suspected = std::exchange(state.suspected, false);
    state.last = now;
    return was_suspected ? std::optional<Time>(silent) : std::nullopt;
}

Time FailureDetector::silent_for(Peer peer, Time now) const {
    auto found = peers_.find(peer);
    return found != peers_.end() && found->second.suspected ? now - found->second.last : Time(0);
}

FailureDetector::News FailureDetector::check(Time now) {
    News news;
    // A late check means that this side slept: nothing could have been heard.
    const Time slept = checked_ ? now - *checked_ - kHeartbeat : Time(0);
    checked_ = now;
    next_news_.reset();
    if (slept >= kSilent / 2)
        for (auto& [peer, state] : peers_) state.last = std::min(now, state.last + slept);
    for (auto it = peers_.begin(); it != peers_.end();) {
        auto current = it++;
        auto& [peer, state] = *current;
        const Time silent = now - state.last;
        if (silent >= kSilent && !std::exchange(state.suspected, true)) news.suspected.push_back(peer);
        if (silent < dead_after_) {
            next_news_ = earlier(next_news_, state.last + (state.suspected ? dead_after_ : kSilent));
            continue;
        }
        news.dead.push_back(peer);
        peers_.erase(current);
    }
    return news;
}

std::optional<Time> FailureDetector::next_check() const {
    if (peers_.empty()) return std::nullopt;
    return earlier(*checked_ + kHeartbeat, next_news_);
}

}  // namespace dp
