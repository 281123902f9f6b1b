// SPDX-License-Identifier: Apache-2.0
//
// How a relay looks for a broker that is not there yet: how many of its targets the next round tries, and how
// long it rests after it. Nearly always the broker takes the step's first port, and its node is only some
// milliseconds behind; a connection refused costs both nodes more than anything else that a relay does. So
// only the first port is tried at first, again after half as long as it was waited for until then; the others
// follow when that has lasted.
#pragma once

#include <algorithm>
#include <cstddef>

#include "engine/time.hpp"

namespace dp {

inline constexpr Time kFirstPause{2};
inline constexpr Time kLongestPause{1000};
// From then on each round goes twice as far down the list as the last.
inline constexpr Time kFirstPortAlone{100};

class SearchPace {
 public:
    // `first`: how many of the `targets` (the first in the list) lead to the first port. Thread-safety: none.
    SearchPace(size_t first, size_t targets) : width_(std::min(first, targets)), targets_(targets) {}

    // How many targets, from the first on, this round tries.
    size_t width() const { return width_; }

    // The round is over and the broker not found: the rest until the next one, which may be wider.
    Time rest(Time at_least = kFirstPause) {
        const Time pause = std::clamp(waited_ / 2, at_least, kLongestPause);
        waited_ += pause;
        if (waited_ >= kFirstPortAlone) width_ = std::min(width_ * 2, targets_);
        return pause;
    }

 private:
    size_t width_;
    size_t targets_;
    Time waited_{0};
};

}  // namespace dp
