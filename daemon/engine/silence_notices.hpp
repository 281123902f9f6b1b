// SPDX-License-Identifier: Apache-2.0
//
// When the user is told which nodes fall silent and which speak again: soon, those of about the same time
// together, and the more nodes come and go, the rarer. A pure state machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/time.hpp"

namespace dp {

// What a switch that stalls silences is named together; with kSilent this is still within a second.
inline constexpr Time kSilencesTogether{100};
// Between two notices at least; longer while they name several nodes each.
inline constexpr Time kFirstNoticePause{1000};
inline constexpr Time kLongestNoticePause{32000};

class SilenceNotices {
 public:
    using Peer = uint32_t;

    void fell_silent(Peer peer, Time now);
    void speaks_again(Peer peer, Time silent, Time now);
    // It has left, or its loss is told.
    void forget(Peer peer);

    struct Notice {
        std::vector<Peer> silent;
        std::vector<Peer> speak_again;
        Time longest{};  // of the silences that are over
    };
    // To be called at next_deadline.
    std::optional<Notice> take(Time now);
    std::optional<Time> next_deadline() const;

 private:
    std::set<Peer> silent_;      // not told yet
    std::map<Peer, Time> over_;  // not told yet: their longest silences
    std::set<Peer> told_;        // the user knows that they are silent
    std::optional<Time> first_;  // of what is not told yet
    Time quiet_until_{};
    Time pause_ = kFirstNoticePause;
};

}  // namespace dp
