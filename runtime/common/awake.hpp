// SPDX-License-Identifier: Apache-2.0
//
// Waiting in time that this process has lived through: while it is stopped (scontrol suspend, SIGSTOP) no
// deadline comes nearer.
#pragma once

#include <algorithm>
#include <chrono>

namespace dp {

// A stop falls into one such part of the wait, and costs no more than that.
inline constexpr std::chrono::milliseconds kAwakeSlice{1000};

// `wait` waits at most as long as it is told and says whether what it waits for is there. → the same of the
// whole.
template <typename Wait>
bool wait_awake(std::chrono::milliseconds time, Wait wait) {
    for (;;) {
        const auto slice = std::min(time, kAwakeSlice);
        if (wait(slice)) return true;
        time -= slice;
        if (time <= std::chrono::milliseconds(0)) return false;
    }
}

}  // namespace dp
