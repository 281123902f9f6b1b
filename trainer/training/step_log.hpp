// SPDX-License-Identifier: Apache-2.0
//
// When a line about steps is due, and what happened since the last one. Independent of ranks and devices.
#pragma once

#include <chrono>
#include <cstdint>

namespace dp::trainer {

// All numbers begin at 1.
struct StepPlace {
    std::int64_t epoch, step;  // the step's place in its epoch
    std::int64_t number;       // and in the training
};

// Counted since the beginning of the training.
struct StepCounts {
    std::int64_t steps = 0;
    std::int64_t skipped = 0;  // of these
    double loss = 0;           // sum over the samples of the others
};

class StepLog {
    using Clock = std::chrono::steady_clock;

 public:
    // Settings::log_every and log_single.
    StepLog(std::int64_t every, bool single) : every_(every), single_(single) {}

    bool is_due(const StepPlace& place) const {
        return every_ > 0 && (single_ ? place.step - 1 : place.number) % every_ == 0;
    }
    // Whether an interval covers only the step that is due, instead of all since the last report.
    bool is_single() const { return single_; }

    // Begins an interval.
    void begin(const StepCounts& counts) {
        begun_ = counts;
        begun_at_ = Clock::now();
    }
    // The interval so far.
    StepCounts since(const StepCounts& now) const {
        return {now.steps - begun_.steps, now.skipped - begun_.skipped, now.loss - begun_.loss};
    }
    double seconds() const { return std::chrono::duration<double>(Clock::now() - begun_at_).count(); }

    // While it lives, time does not count as the interval's: during a test or a checkpoint.
    class PausedTimer {
     public:
        explicit PausedTimer(StepLog& log) : log_(log) {}
        ~PausedTimer() { log_.begun_at_ += Clock::now() - since_; }
        PausedTimer(const PausedTimer&) = delete;
        PausedTimer& operator=(const PausedTimer&) = delete;

     private:
        StepLog& log_;
        Clock::time_point since_ = Clock::now();
    };

 private:
    std::int64_t every_;
    bool single_;
    StepCounts begun_;
    Clock::time_point begun_at_ = Clock::now();
};

}  // namespace dp::trainer
