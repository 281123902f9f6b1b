// SPDX-License-Identifier: Apache-2.0
//
// When to report what several nodes or ranks may do at about the same time: soon, and together. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/time.hpp"

namespace dp {

// Nodes that a stalled switch silences are reported together; with kSilent this is still within a second.
inline constexpr Time kSilencesTogether{100};
// The least pause between two notices; longer while they name several nodes each.
inline constexpr Time kFirstNoticePause{1000};
inline constexpr Time kLongestNoticePause{32000};

// Notices about nodes that fall silent and respond again; the more nodes come and go, the rarer.
class SilenceNotices {
 public:
    using Peer = uint32_t;

    void fell_silent(Peer peer, Time now) {
        over_.erase(peer);
        if (told_.contains(peer)) return;
        silent_.insert(peer);
        if (!first_) first_ = now;
    }
    void speaks_again(Peer peer, Time silent, Time now) {
        silent_.erase(peer);
        Time& longest = over_[peer];
        longest = std::max(longest, silent);
        if (!first_) first_ = now;
    }
    // It has left, or its loss is reported.
    void forget(Peer peer) {
        silent_.erase(peer);
        over_.erase(peer);
        told_.erase(peer);
    }

    struct Notice {
        std::vector<Peer> silent;
        std::vector<Peer> speak_again;
        Time longest{};  // of the silences that are over
    };
    // Call it at next_deadline.
    std::optional<Notice> take(Time now) {
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
    std::optional<Time> next_deadline() const {
        if (silent_.empty() && over_.empty()) return std::nullopt;
        return std::max(*first_ + kSilencesTogether, quiet_until_);
    }

 private:
    std::set<Peer> silent_;      // not told yet
    std::map<Peer, Time> over_;  // not told yet: their longest silences
    std::set<Peer> told_;        // the user knows that they are silent
    std::optional<Time> first_;  // of what is not told yet
    Time quiet_until_{};
    Time pause_ = kFirstNoticePause;
};

// Ranks that are stopped at about the same time are reported together.
inline constexpr Time kStoppedTogether{100};

class StoppedRanks {
 public:
    struct Notice {
        std::vector<uint32_t> stopped, continued;  // ascending
    };

    void note(uint32_t rank, bool stopped, Time now) {
        (stopped ? notice_.stopped : notice_.continued).push_back(rank);
        if (!say_at_) say_at_ = now + kStoppedTogether;
    }
    std::optional<Notice> take(Time now) {
        if (!say_at_ || now < *say_at_) return std::nullopt;
        say_at_.reset();
        for (auto* ranks : {&notice_.stopped, &notice_.continued}) std::sort(ranks->begin(), ranks->end());
        return std::exchange(notice_, {});
    }
    std::optional<Time> next_deadline() const { return say_at_; }

 private:
    Notice notice_;
    std::optional<Time> say_at_;  // set while there is something to say
};

}  // namespace dp
