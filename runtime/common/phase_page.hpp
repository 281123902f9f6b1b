// SPDX-License-Identifier: Apache-2.0
//
// The page in which a rank says what it is doing (dp_phase): a memfd that libdp writes and the node's daemon
// reads on request. A change of phase costs the rank reading a clock and a few stores, and no system call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace dp {

// The number of values of dp_phase_kind.
inline constexpr size_t kPhases = 5;
using PhaseTimes = std::array<int64_t, kPhases>;  // nanoseconds by phase

// The exact size of the file; its content begins at 0.
inline constexpr size_t kPhasePageBytes = 4096;
// The memfd's name, which the daemon looks for before it opens a descriptor of a rank.
inline constexpr const char* kPhasePageName = "slurm-dp-phases";

// Its content, word by word. Times are CLOCK_MONOTONIC.
struct PhasePage {
    uint64_t version = 0;
    uint64_t sequence = 0;  // odd while the rest is being written
    uint64_t phase = 0;     // the current one
    int64_t since_ns = 0;   // when it began
    PhaseTimes total_ns{};  // of what was before, by phase

    bool operator==(const PhasePage&) const = default;
};
inline constexpr uint64_t kPhasePageVersion = 1;

// CLOCK_MONOTONIC.
int64_t monotonic_ns();

// The rank's side: the same page in shared memory. One thread at a time.
class SharedPhasePage {
 public:
    // Fresh memory, all zeros.
    void begin(uint64_t phase, int64_t now_ns);
    void enter(uint64_t phase, int64_t now_ns);

 private:
    std::atomic<uint64_t> version_;
    std::atomic<uint64_t> sequence_;
    std::atomic<uint64_t> phase_;
    std::atomic<int64_t> since_ns_;
    std::array<std::atomic<int64_t>, kPhases> total_ns_;
};
static_assert(sizeof(SharedPhasePage) == sizeof(PhasePage) && sizeof(PhasePage) <= kPhasePageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

// The daemon's side. Returns a consistent page or nothing, whatever the rank does to the file meanwhile.
std::optional<PhasePage> read_phase_page(int fd);

// How long the rank has been in each phase so far; nothing if the page is not one of ours. Whatever its
// content, no time is negative or later than now. Pure.
std::optional<PhaseTimes> phase_times(const PhasePage& page, int64_t now_ns);

}  // namespace dp
