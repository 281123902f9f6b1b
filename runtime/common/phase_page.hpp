// SPDX-License-Identifier: Apache-2.0
//
// The page in which a rank says what it is doing (dp_phase), how long its steps take (dp_at_step) and how its training goes (dp_log_scalar):
// a memfd that libdp writes and the node's daemon reads. A change of phase costs the rank reading a clock and a few stores, and no system call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dp {

// The number of values of dp_phase_kind.
inline constexpr size_t kPhases = 5;
// DP_PHASE_COMMUNICATION: where a rank waits for the others.
inline constexpr size_t kWaits = 3;
using PhaseTimes = std::array<int64_t, kPhases>;  // nanoseconds by phase

// The exact size of the file; its content begins at 0.
inline constexpr size_t kPhasePageBytes = 4096;
// The memfd's name, which the daemon looks for before it opens a descriptor of a rank.
inline constexpr const char* kPhasePageName = "slurm-dp-phases";

// The number of steps whose times are kept.
inline constexpr size_t kOwnTimes = 32;

// The number of phases that have ended which are kept.
inline constexpr size_t kEndedPhases = 128;

// The number of scalars that a rank can log, and the bytes of a name of one. The page has room for one byte more, which stays 0.
inline constexpr size_t kMostScalars = 8, kMaxScalarName = 31;

// Its content, word by word. Times are CLOCK_MONOTONIC.
struct PhasePage {
    uint64_t version = 0;
    uint64_t sequence = 0;  // odd while the rest is being written
    uint64_t phase = 0;     // the current one
    int64_t since_ns = 0;   // when it began
    PhaseTimes total_ns{};  // of what was before, by phase
    // What follows stays zero with a libdp that does not write it.
    uint64_t steps = 0;           // that were taken since the first phase, by this process's own count
    int64_t last_step_ns = 0;     // when the last one ended; 0: none has
    PhaseTimes at_step_ns{};      // how long each phase had been on by then
    int64_t own_ns[kOwnTimes]{};  // of step i at i % kOwnTimes: its time but for the waits for others
    // The same, since a later version: the phases that have ended, phase i at i % kEndedPhases. Each lasted until the next one began, the
    // last one until since_ns.
    struct Ended {
        int64_t since_ns = 0;
        uint64_t step_and_phase = 0;  // steps by its beginning * 256 + phase
        bool operator==(const Ended&) const = default;
    };
    uint64_t since_step = 0;  // steps by since_ns
    uint64_t ended_count = 0;
    Ended ended[kEndedPhases]{};
    // The same, since a later version, also in a page whose version is 0 because no phase has begun: what was logged last, by name. Those
    // that are there stay where they are.
    struct Scalar {
        uint64_t logged = 0;                           // how often; 0: this and the next ones are free
        uint64_t step = 0;                             // by the training's own count
        uint64_t value = 0;                            // a double's bits
        uint64_t name[(kMaxScalarName + 1) / 8] = {};  // its bytes, then zeros
        bool operator==(const Scalar&) const = default;
    };
    Scalar scalars[kMostScalars]{};

    bool operator==(const PhasePage&) const = default;
};
inline constexpr uint64_t kPhasePageVersion = 1;
static_assert(sizeof(PhasePage) <= kPhasePageBytes);

// CLOCK_MONOTONIC.
int64_t monotonic_ns();

// The rank's side: the page in shared memory, fresh (all zeros) or begun. One thread at a time.
void begin_phases(PhasePage& shared, uint64_t phase, int64_t now_ns);
void enter_phase(PhasePage& shared, uint64_t phase, int64_t now_ns);
void end_step(PhasePage& shared, int64_t now_ns);

// Whether a scalar can have this name: 1 to kMaxScalarName bytes of printable ASCII.
bool is_scalar_name(std::string_view name);
// The rank's side, likewise. False: there are kMostScalars others. `name` is one.
bool log_scalar(PhasePage& shared, std::string_view name, double value, uint64_t step);

// The daemon's side. Returns a consistent page or nothing, whatever the rank does to the file meanwhile.
std::optional<PhasePage> read_phase_page(int fd);

// How long the rank has been in each phase so far; nothing if the page is not one of ours. Whatever its
// content, no time is negative or later than now. Pure.
std::optional<PhaseTimes> phase_times(const PhasePage& page, int64_t now_ns);

// A phase that has ended.
struct PhaseInterval {
    int64_t from_ns = 0, until_ns = 0;
    size_t phase = 0;
    uint64_t step = 0;  // steps that the process had taken when it began
    bool operator==(const PhaseInterval&) const = default;
};
// Those that have ended since there were `count` of them, oldest first, as far as they are kept; none if the page is not one of ours. Whatever
// its content, they follow one another, and none ends later than now. Pure.
std::vector<PhaseInterval> ended_phases(const PhasePage& page, uint64_t count, int64_t now_ns);

// A scalar as it was logged last.
struct LoggedScalar {
    size_t place = 0;     // in the page
    uint64_t logged = 0;  // how often
    std::string name;
    double value = 0;
    uint64_t step = 0;
};
// Whatever the page's content, each has a name that a scalar can have. Pure.
std::vector<LoggedScalar> logged_scalars(const PhasePage& page);

// How much of its last steps the rank spent on its own, each apart from the waits for others: their median, in which a step counts half
// as much as the one kHalfLife later. Nothing before kHalfLife steps, of a rank that never says that it waits, or if the page is not one of ours. Pure.
inline constexpr size_t kHalfLife = 8;
std::optional<int64_t> own_time_of_step(const PhasePage& page);

}  // namespace dp
