// SPDX-License-Identifier: Apache-2.0
//
// Where every second of every task of a run went: by window of time, and in all (the ledger). Nothing is left out and nothing is counted
// twice: for each task the times of a window sum to the window.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "record/gpus.hpp"
#include "record/run.hpp"
#include "record/scalars.hpp"
#include "record/spent.hpp"

namespace dp {

// The most windows that a run is divided into; fewer where there are many tasks, whose windows together are about kCells.
inline constexpr size_t kMostWindows = 600, kFewestWindows = 100, kCells = 200'000;
// Where there are many runs, or very many tasks.
inline constexpr size_t kFewestOfMany = 10;

struct TaskWindow {
    std::array<float, kSpent> spent{};  // seconds
    float steps = 0;                    // training steps
};

struct NodeWindow {
    std::optional<uint32_t> memory_mib;  // used, as it was seen last
    double sent_kib = 0, received_kib = 0;
    GpuWindow gpus;
};

struct TaskTimeline {
    std::vector<TaskWindow> windows;
    SpentTimes ledger{};
};

struct NodeTimeline {
    std::vector<NodeWindow> windows;
    std::vector<TaskTimeline> tasks;  // as in NodeRecord
    std::vector<GpuSummary> gpus;     // by tile; none: they were not looked at
};

struct Timeline {
    double window = 0;  // seconds
    size_t windows = 0;
    std::vector<NodeTimeline> nodes;  // as in RecordedRun
    SpentTimes ledger{};              // of all tasks
    double allocated = 0;             // task-seconds: what the ledger sums to
    Scalars scalars;                  // what the program has logged
};

// Reads the files again. Fails if one has gone, or has changed. `runs`: how many share the windows that there may be.
Try<Timeline> read_timeline(const RecordedRun& run, size_t runs = 1);

// While programs ran as ranks.
double running_seconds(const SpentTimes& times);

// The share of the allocated time that went into training steps that counted: compute and communication. Nothing where no rank has said
// what it did.
//
// Google's ML productivity goodput and MegaScale's effective training time count a step's whole time, also where its ranks wait for a
// slower one (https://cloud.google.com/blog/products/ai-machine-learning/goodput-metric-as-measure-of-ml-productivity; Jiang et al.,
// NSDI 2024, section 6.3). This is stricter: waiting for others is no goodput, because a straggler makes it.
std::optional<double> goodput(const SpentTimes& ledger);

// The windows' letters (spent.hpp): what most of each one went to.
std::string course_of(const TaskTimeline& task);

}  // namespace dp
