// SPDX-License-Identifier: Apache-2.0
#include "engine/notices.hpp"

#include <algorithm>

namespace dp {

void SilenceNotices::fell_silent(Peer peer, Time now) {
    over_.erase(peer);
    if (told_.contains(peer)) return;
    silent_.insert(peer);
    if (!first_) first_ = now;
}

void SilenceNotices::speaks_again(Peer peer, Time silent, Time now) {
    silent_.erase(peer);
    Time& longest = over_[peer];
    longest = std::max(longest, silent);
    if (!first_) first_ = now;
}

void SilenceNotices::forget(Peer peer) {
    silent_.erase(peer);
    over_.erase(peer);
    told_.erase(peer);
}

std::optional<Time> SilenceNotices::next_deadline() const {
    if (silent_.empty() && over_.empty()) return std::nullopt;
    return std::max(*first_ + kSilencesTogether, quiet_until_);
}

std::optional<SilenceNotices::Notice> SilenceNotices::take(Time now) {
    const auto due = next_deadline();
    if (!due) first_.reset();
    if (!due || now < *due) return std::nullopt;
    Notice notice;
    notice.silent.assign(silent_.begin(), silent_.end());
    for (const auto& [peer, silent] : over_) {
        notice.speak_again.push_back(peer);
        notice.longest = std::max(notice.longest, silent);
        told_.erase(peer);
    }
    told_.merge(silent_);
    silent_.clear();
    over_.clear();
    first_.reset();
    if (now >= quiet_until_ + pause_)
        pause_ = kFirstNoticePause;
    else if (notice.silent.size() + notice.speak_again.size() > 1)
        pause_ = std::min(pause_ * 2, kLongestNoticePause);
    else
        pause_ = std::max(pause_ / 2, kFirstNoticePause);
    quiet_until_ = now + pause_;
    return notice;
}

}  // namespace dp
