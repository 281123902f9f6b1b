// SPDX-License-Identifier: Apache-2.0
//
// Whether a rank's process has stopped making progress, from many looks at where it is. Pure.
//
// A process that hangs is at one place at every look, or comes back to it at once (a wait that polls). One that works is at
// another place sooner or later: of some hundred looks within the timeout, one sees it there. The same place means the same calls
// with the same variables, so that a loop of long waits is seen to move, too. What reads or writes files, or has
// busy children, works as well. One that uses the processor at one place may be in a long computation or in an endless loop, which cannot be
// told from outside: it gets several timeouts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace dp::stacks {

using SteadyTime = std::chrono::steady_clock::time_point;

// How long a process that is busy at one place may be so, in timeouts.
inline constexpr int kPatienceWithBusy = 5;
// Of its own time, what a process uses of a CPU that is busy.
inline constexpr double kBusy = 0.05;
// Looks at other places in a timeout that are no progress: a wait that polls.
inline constexpr int kStrayLooks = 3;
// Lines between which an endless loop may go round at one place.
inline constexpr size_t kLinesOfALoop = 4;
// Bytes read and written in a timeout that are progress: a checkpoint, not a line of a log.
inline constexpr uint64_t kTransferOfWork = 64 << 10;

// The looks within a timeout.
inline std::chrono::milliseconds look_interval(std::chrono::milliseconds timeout) {
    using std::chrono::milliseconds;
    return std::clamp(timeout / 200, milliseconds(20), milliseconds(500));
}

struct Look {
    SteadyTime at{};
    uint64_t place = 0;  // of its main thread: equal at equal places; 0: it cannot be told, as if it moved
    uint64_t line = 0;   // of the innermost call, there
    uint64_t calls = 0;  // to read and write, of its main thread so far: a wait makes none
    uint64_t transferred = 0;                 // bytes that it and its children have read and written so far
    std::chrono::nanoseconds cpu{};           // that it has used so far
    std::chrono::nanoseconds children_cpu{};  // and what it has started
    bool is_counted = true;                   // since `calls`, at this look and not at an earlier one
};

class StillnessDetector {
 public:
    explicit StillnessDetector(std::chrono::milliseconds timeout) : timeout_(timeout) {}

    void note(const Look& look);
    // The processes that were looked at are others, or nobody has looked for a while: the step was suspended.
    void reset() {
        begun_.reset();
        counted_.reset();
    }
    // Whether it may have come to stay at this look's place, and nothing was counted there yet.
    bool wants_counts(const Look& look) const { return is_at_its_place(look) && !counted_; }

    // Since when it has been at its present place; nullopt: nobody has looked.
    std::optional<SteadyTime> came() const { return begun_ ? std::optional(begun_->at) : std::nullopt; }
    // The same if that is the timeout ago.
    std::optional<SteadyTime> still_since() const;
    // Whether it uses the processor there, and whether it has done so for several timeouts.
    bool is_busy() const;
    // Whether this is where it has been all the time, and not a look at another place between.
    bool is_at_its_place(const Look& look) const { return begun_ && look.place == begun_->place; }
    bool has_been_busy_for_long() const { return begun_ && stood() >= kPatienceWithBusy * timeout_; }

 private:
    std::chrono::milliseconds timeout_;
    std::optional<Look> begun_;    // at its present place
    std::optional<Look> counted_;  // likewise, the first that was counted there
    Look last_;
    int strays_ = 0;
    SteadyTime strays_since_{};
    std::set<uint64_t> lines_;  // seen there

    bool is_where_it_was();
    std::chrono::nanoseconds stood() const { return last_.at - begun_->at; }
};

}  // namespace dp::stacks
