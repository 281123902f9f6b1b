// SPDX-License-Identifier: Apache-2.0
//
// Which steps of a training are profiled, and what is logged of them. run.cpp tells it of the training; profile.hpp makes a
// profile of what it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/devices/operation_log.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// From `first` to `last`, both included, of those that a process takes in a generation of its world: the first is 1.
struct StepRange {
    std::int64_t first = 10, last = 15;

    bool operator==(const StepRange&) const = default;
};

// Pure: the steps to profile of a training of `steps`: those wanted that there are, and where there is none, the last half, at most as
// many as were wanted: the first steps are slower than others.
StepRange steps_to_profile(const StepRange& wanted, std::int64_t steps);

struct RecordedStep {
    std::int64_t begin, end;                 // in nanoseconds of the steady clock
    std::size_t first, operations;           // of the log
    std::optional<std::int64_t> background;  // nanoseconds in which asynchronous sums were in progress
};

// One thread uses it.
class ProfileRecorder {
 public:
    explicit ProfileRecorder(const StepRange& wanted) : wanted_(wanted) {}
    ProfileRecorder(const ProfileRecorder&) = delete;
    ProfileRecorder& operator=(const ProfileRecorder&) = delete;

    // Where the device and the communicator log.
    OperationLog& log() { return log_; }
    const OperationLog& log() const { return log_; }
    // What is trained from now on, and outlives the next steps; it takes `steps`. What was recorded
    // is forgotten, unless it was all.
    void follow(const ParameterSet& parameters, const Communicator& communicator, const MemoryAccount& memory,
                std::int64_t steps);
    // The training goes on behind this step.
    void resumed(std::int64_t step);
    void on_step_begin();
    void on_step();
    // After the last step. Where a device works behind its calls, the times become those that it took.
    void settle();
    // Why nothing is known of the steps; "": it is.
    const std::string& problem() const { return problem_; }

    const std::vector<RecordedStep>& steps() const { return steps_; }
    // The medians of a step's seconds: of the profiled ones, and of those before, but for the first; 0: there was none. Of a device that works
    // behind its calls, those before have a mean, with what was between them.
    double seconds() const;
    double seconds_without() const;
    // How much of the profiled steps the profile itself took, 0..1: its operations, each as long as an empty one; where a device works behind
    // them, what these steps took longer than those before.
    // nullopt: it is not known.
    std::optional<double> overhead() const;
    // Bytes that the device held in the profiled steps.
    std::int64_t held() const { return held_; }
    StepRange range() const { return range_; }

 private:
    StepRange wanted_, range_;
    OperationLog log_;
    const ParameterSet* parameters_ = nullptr;
    const Communicator* communicator_ = nullptr;
    const MemoryAccount* memory_ = nullptr;
    std::int64_t held_ = 0;
    std::int64_t total_ = 0;  // steps of the training
    std::int64_t taken_ = 0;  // steps
    std::optional<RecordedStep> now_;
    std::int64_t began_ = 0;      // a step that is not profiled
    std::vector<double> before_;  // seconds of the steps before
    std::vector<RecordedStep> steps_;
    std::string problem_;
    bool is_settled_ = false;
    // Of a device that works behind its calls: when it had done all steps but the profiled ones and the first, these, and all.
    std::int64_t first_done_ = 0, before_done_ = 0, all_done_ = 0;

    bool works_behind() const { return log_.has_timeline(); }
    std::int64_t done();
};

// Pure: what a parameter's operations are named: "ffn.1" of "ffn.1.weight".
std::string layer_of(const std::string& parameter);

}  // namespace dp::trainer
