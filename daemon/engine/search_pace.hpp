// SPDX-License-Identifier: Apache-2.0
//
// How a relay searches for a broker that is not there yet: how many targets the next round tries, and the
// pause after it. Nearly always the broker takes the step's first port, and its node is only milliseconds
// behind; refused connections are what costs both nodes most. So a relay tries the first port only, with
// pauses half as long as it has waited so far, and the others after kFirstPortAlone.
#pragma once

#include <algorithm>
#include <cstddef>

#include "engine/time.hpp"

namespace dp {

inline constexpr Time kFirstPause{2};
inline constexpr Time kLongestPause{1000};
// From then on, each round goes twice as far down the list as the last one.
inline constexpr Time kFirstPortAlone{100};

class SearchPace {
 public:
    // `first`: the number of `targets`, at the head of the list, that lead to the first port.
    SearchPace(size_t first, size_t targets) : width_(std::min(first, targets)), targets_(targets) {}

    // The number of targets, from the first on, that this round tries.
    size_t width() const { return width_; }

    // The round is over without the broker. Returns the pause until the next one, which may be wider.
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
