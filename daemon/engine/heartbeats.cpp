// SPDX-License-Identifier: Apache-2.0
#include "engine/heartbeats.hpp"

namespace dp {

void Heartbeats::watch(Peer peer, Time now) {
    detector_.watch(peer, now);
    if (!send_at_) send_at_ = now + kHeartbeat;
}

void Heartbeats::forget(Peer peer) {
    detector_.forget(peer);
    notices_.forget(peer);
}

void Heartbeats::heard(Peer peer, Time now) {
    if (auto silent = detector_.heard(peer, now)) notices_.speaks_again(peer, *silent, now);
}

Heartbeats::News Heartbeats::check(Time now) {
    News news;
    const auto next = detector_.next_check();
    if (!next) send_at_.reset();
    if (send_at_ && now >= *send_at_) {
        send_at_ = now + kHeartbeat;
        news.send = true;
    }
    if (next && now >= *next) {
        FailureDetector::News found = detector_.check(now);
        for (Peer peer : found.suspected) notices_.fell_silent(peer, now);
        for (Peer peer : found.dead) notices_.forget(peer);
        news.dead = std::move(found.dead);
    }
    news.notice = notices_.take(now);
    return news;
}

std::optional<Time> Heartbeats::next_deadline() const {
    const auto next = detector_.next_check();
    return earlier(notices_.next_deadline(), next ? earlier(next, send_at_) : next);
}

}  // namespace dp
