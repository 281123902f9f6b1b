// SPDX-License-Identifier: Apache-2.0
//
// --dp-record: what a node's daemon records of its step, from the start to the end.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "loop/gpu_sampler.hpp"
#include "loop/record_writer.hpp"
#include "loop/sample_reader.hpp"
#include "record/detail_schedule.hpp"
#include "record/entries.hpp"
#include "record/environment.hpp"
#include "record/gpus.hpp"
#include "record/hang.hpp"

namespace dp {

// The least time between two samples: one more is taken when something ends.
inline constexpr std::chrono::milliseconds kSamplePause{50};
// How long environments that ranks have told wait for those of the node's other ranks, to be in one entry.
inline constexpr std::chrono::seconds kEnvironmentsWait{5};
// While single phases are recorded they are at most so far apart (record/detail_schedule.hpp).
inline constexpr std::chrono::milliseconds kDetailPause{1000};

class StepRecorder {
 public:
    // `secret`: the step's. `on_failure`: once; nothing is recorded from then on.
    StepRecorder(const DaemonConfig& config, const std::string& secret,
                 std::function<void(const std::string& why)> on_failure);

    // The file is written from now on.
    void start(event_base* base);
    // Who writes it, and who looks at the GPUs: as long as they run.
    std::set<pid_t> helpers() const;
    bool has_started() const { return writer_.has_started(); }

    // `config`: as it is once the plan has been taken.
    void begin_generation(const DaemonConfig& config, const NodePlan& plan);
    // Its ranks are being ended. has_ended: this end is already recorded.
    bool has_ended(uint32_t generation, bool is_last) const {
        return ended_ == std::pair(generation, is_last);
    }
    void end_generation(uint32_t generation, const wire::Abort& why, bool is_last);
    // News of its ranks.
    void note(const wire::FromNode& message);
    // A line for the user.
    void note(const std::string& line);
    // What ranks were found to do, by rank. Only so many hangs (kMostHangs).
    void note(const wire::Hang& hang, const std::map<uint32_t, wire::RankStacks::Thread>& calls);
    // What slurm-dp has set in the environment of one of the present generation's ranks, as its process has told.
    void note_environment(uint32_t rank, std::string_view told);
    // Of ranks that have told a while ago: others of the node may have been told of before, in another generation.
    void add_waiting_environments();
    // What its node's ranks talk over, and how fit it was found (engine/preflight_record.hpp).
    void note(const wire::NcclTransports& found, const DaemonConfig& config);
    void note(const wire::NodeExamination& found);
    void note(const wire::MeasureLink& begun);
    void note(const wire::MeasuredLink& link);
    // Whether the last sample is at least so old. A sample costs some system calls a rank.
    bool wants_sample(std::chrono::milliseconds pause) const;
    // Whether one is taken anyhow, since single phases are recorded now.
    bool records_phases(const std::vector<SampleReader::Rank>& ranks);
    // In the order of the generation's ranks. Not a regular one: something ends. `config`: as it is now.
    void sample(const DaemonConfig& config, const std::vector<SampleReader::Rank>& ranks, bool is_regular);
    // Whether a rank that ends has logged what is in no sample.
    bool wants_scalars(const std::vector<SampleReader::Rank>& ranks) const {
        return generation_ && samples_.has_new_scalars(ranks);
    }
    void finish(event_base* base);

 private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point began_ = Clock::now();
    Clock::time_point sampled_ = began_;
    std::optional<uint32_t> generation_;
    uint32_t world_size_ = 0;
    DetailSchedule details_;
    std::optional<std::pair<uint32_t, bool>> ended_;
    size_t hangs_ = 0;
    std::map<uint32_t, Variables> environments_;  // by rank, until all have told, or kEnvironmentsWait
    Clock::time_point first_told_;                // of these
    std::set<uint32_t> told_;                     // ranks that have, in this generation
    size_t ranks_ = 0;
    std::map<uint32_t, std::string> partners_;  // addresses, by round of links that are measured
    SampleReader samples_;
    GpuSampler gpus_;
    GpuChanges gpu_changes_;
    RecordWriter writer_;

    void add(record::Entry entry) { add(age(), std::move(entry)); }
    void add(std::chrono::milliseconds at, record::Entry entry);
    void add_environments();
    std::chrono::milliseconds age() const;
};

}  // namespace dp
