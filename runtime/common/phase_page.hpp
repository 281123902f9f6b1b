// SPDX-License-Identifier: Apache-2.0
//
// The page in which a rank says what it is doing (dp_phase): a memfd that libdp writes and the node's daemon
// reads on request. A change of phase costs the rank reading a clock and a few stores, and no system call.
#pragma once

#include <array>
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
static_assert(sizeof(PhasePage) <= kPhasePageBytes);

// CLOCK_MONOTONIC.
int64_t monotonic_ns();

// The rank's side: the page in shared memory, fresh (all zeros) or begun. One thread at a time.
void begin_phases(PhasePage& shared, uint64_t phase, int64_t now_ns);
void enter_phase(PhasePage& shared, uint64_t phase, int64_t now_ns);

// The daemon's side. Returns a consistent page or nothing, whatever the rank does to the file meanwhile.
std::optional<PhasePage> read_phase_page(int fd);

// How long the rank has been in each phase so far; nothing if the page is not one of ours. Whatever its
// content, no time is negative or later than now. Pure.
std::optional<PhaseTimes> phase_times(const PhasePage& page, int64_t now_ns);

}  // namespace dp
