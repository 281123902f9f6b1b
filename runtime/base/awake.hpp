// SPDX-License-Identifier: Apache-2.0
//
// Time that this process has lived through: deadlines do not come nearer while it is stopped (scontrol
// suspend, SIGSTOP). Stops shorter than kStoodStill look like a slow machine and do count.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace dp {

inline constexpr std::chrono::milliseconds kStoodStill{3000};
inline constexpr std::chrono::milliseconds kAwakeSlice{1000};

// A clock to read at least once a second: a pause longer than kStoodStill means that it was stopped.
class AwakeClock {
 public:
    explicit AwakeClock(std::chrono::milliseconds steady) : last_(steady) {}

    // `steady`: the system's steady clock, never less than before.
    std::chrono::milliseconds at(std::chrono::milliseconds steady) {
        if (steady - last_ >= kStoodStill) stopped_ += steady - last_;
        last_ = steady;
        return steady - stopped_;
    }

 private:
    std::chrono::milliseconds last_;
    std::chrono::milliseconds stopped_{};
};

inline std::chrono::milliseconds steady_now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

// poll(2) of one descriptor, which signals do not end early.
inline int poll_for(pollfd& entry, std::chrono::milliseconds time) {
    const auto end = steady_now() + time;
    for (;;) {
        const auto left = std::max(end - steady_now(), std::chrono::milliseconds(0));
        const int n = poll(&entry, 1, static_cast<int>(left.count()));
        if (n >= 0 || errno != EINTR) return n;
    }
}

// `wait` waits at most as long as it is told and says whether what it waits for is there. Returns the same
// for the whole wait. A slice that took kStoodStill longer than it should does not count.
template <typename Wait, typename Now = std::chrono::milliseconds (*)()>
bool wait_awake(std::chrono::milliseconds time, Wait wait, Now now = steady_now) {
    for (;;) {
        const auto slice = std::min(time, kAwakeSlice);
        const auto begin = now();
        if (wait(slice)) return true;
        if (now() - begin < slice + kStoodStill) time -= slice;
        if (time <= std::chrono::milliseconds(0)) return false;
    }
}

}  // namespace dp
