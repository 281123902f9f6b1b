// SPDX-License-Identifier: Apache-2.0
//
// Single phases of a run's ranks, where its record has them (record.proto, Sample.Detail), and who waited for whom in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/failure.hpp"
#include "record/run.hpp"
#include "record/spent.hpp"

namespace dp {

// The most that are read of a run.
inline constexpr size_t kMostDetails = 1'000'000;

struct RankPhase {
    uint32_t node = 0, task = 0;  // as in RecordedRun
    uint32_t rank = 0, generation = 0;
    Interval time;  // seconds since the run began
    Spent what = Spent::idle;
    uint64_t step = 0;  // steps that its process had taken
    // The how-manieth communication of that step it is, from 0. Nothing for other phases, and where the record lacks the step's beginning:
    // without dp_at_step, always.
    std::optional<uint32_t> round;
};

struct Details {
    std::vector<RankPhase> phases;  // by node, task and time; those of a task never overlap
    // From this second on they are left out, of all nodes: more than `most` would be too many.
    std::optional<int64_t> left_out_from;
};
// Reads the files again; fails if one has gone, or has changed.
Try<Details> read_details(const RecordedRun& run, size_t most = kMostDetails);

// In a communication of all ranks of a generation, the one whose communication was the shortest was waited for. Their clocks do not decide
// that, since those of two nodes differ by more than a communication takes. Among fewer ranks (groups of a tensor- or pipeline-parallel
// world) nobody is found.
struct Wait {
    size_t who = 0, for_whom = 0;  // places in the list of phases
};
// Waits that took longer than this are told, in seconds.
inline constexpr double kShortestWait = 100e-6;
// Pure. `phases` is read_details'. By generation, step, round and rank.
std::vector<Wait> waits_in(const RecordedRun& run, const std::vector<RankPhase>& phases);

}  // namespace dp
