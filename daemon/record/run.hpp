// SPDX-License-Identifier: Apache-2.0
//
// The runs that some records are of: what their nodes' files say together, but for the samples (record/timeline.hpp). Times are seconds
// since the run began, on one clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "record.pb.h"
#include "record/environment.hpp"
#include "record/hang.hpp"
#include "record/preflight.hpp"
#include "record/transports.hpp"

namespace dp {

struct Interval {
    double from = 0, until = 0;
    double length() const { return until > from ? until - from : 0; }
};

// A task in one generation.
struct RankLife {
    uint32_t generation = 0;
    std::optional<uint32_t> rank;  // it may have none
    Interval time;                 // of the generation on this node
    bool is_followed = false;      // it ended for another generation
    std::optional<double> started, hello, ready, first_phase, exited;
    std::optional<int> wait_status;
    std::vector<Interval> still;  // without progress
    int64_t steps = 0;            // the training's count when it was seen last

    // When its start was over.
    double running_from() const;
    double running_until() const { return std::min(exited.value_or(time.until), time.until); }
};

struct TaskRecord {
    uint32_t local_id = 0;
    std::vector<RankLife> lives;  // by generation
    uint32_t memory_peak_mib = 0;
    double cpu_seconds = 0;
    int64_t steps = 0;  // that were taken, over all lives

    // Those in which it had a rank; nullptr: it had none.
    const RankLife* first_as_rank() const;
    const RankLife* last_as_rank() const;
};

struct NodeRecord {
    std::string path;
    std::string host;
    uint32_t node_rank = 0;
    size_t entries = 0;  // of its file, behind the first one: what is shown
    double offset = 0;   // of its file's clock
    Interval time;       // of the file
    bool is_complete = false;
    std::vector<TaskRecord> tasks;
    std::optional<RecordedPreflight> preflight;
};

struct GenerationOfRun {
    uint32_t number = 0;
    uint32_t world_size = 0;
    Interval time;
    std::optional<int64_t> first_step, last_step;  // the training's count; the first only after a restart
    std::string reason;                            // of its end; "" if it ended by itself
};

struct RunEvent {
    double at = 0;
    std::string host;
    std::string text;
    CallsOfHang calls;  // of a hang
};

struct RecordedRun {
    std::string id;
    std::string slurm_dp;
    uint32_t job_id = 0, step_id = 0;
    std::string hosts;
    uint32_t node_count = 0;
    int64_t unix_ms = 0;  // when it began, by the clock of the node with the lowest rank
    double seconds = 0;
    std::map<std::string, std::string> settings;
    std::vector<NodeRecord> nodes;  // by rank
    std::vector<GenerationOfRun> generations;
    std::vector<RunEvent> events;  // by time
    size_t events_left_out = 0;
    // Of the last generation of which that is known.
    RecordedTransports transports;
    RecordedEnvironment environment;

    enum class How { finished, failed, unknown };
    struct Outcome {
        How how = How::unknown;
        std::string reason;
    } outcome;
    // The job was requeued: the training's lowest count from which a later run of this step of it went on, if that is known.
    std::optional<int64_t> requeued_from;

    uint32_t world_size() const;  // the first one
    size_t task_count() const;
};

struct Records {
    std::vector<RecordedRun> runs;      // by time
    std::vector<std::string> problems;  // what is not shown, and why
};

// Of these files, and of the records in these directories. Fails where nothing can be shown.
Try<Records> read_records(const std::vector<std::string>& places);

}  // namespace dp
