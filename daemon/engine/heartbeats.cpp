// SPDX-License-Identifier: Apache-2.0
#include "engine/heartbeats.hpp"

namespace dp {

void Heartbeats::watch(Peer peer, Time now) {
    silence_.watch(peer, now);
    if (!send_at_) send_at_ = now + kBeat;
}

void Heartbeats::forget(Peer peer) {
    silence_.forget(peer);
    notices_.forget(peer);
}

void Heartbeats::heard(Peer peer, Time now) {
    if (auto silent = silence_.heard(peer, now)) notices_.speaks_again(peer, *silent, now);
}

Heartbeats::News Heartbeats::check(Time now) {
    News news;
    const auto next = silence_.next_check();
    if (!next) send_at_.reset();
    if (send_at_ && now >= *send_at_) {
        send_at_ = now + kBeat;
        news.send = true;
    }
    if (next && now >= *next) {
        Silence::News found = silence_.check(now);
        for (Peer peer : found.suspected) notices_.fell_silent(peer, now);
        for (Peer peer : found.dead) notices_.forget(peer);
        news.dead = std::move(found.dead);
    }
    news.notice = notices_.take(now);
    return news;
}

std::optional<Time> Heartbeats::next_deadline() const {
    const auto next = silence_.next_check();
    return earlier(notices_.next_deadline(), next ? earlier(next, send_at_) : next);
}

}  // namespace dp
