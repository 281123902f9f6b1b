// SPDX-License-Identifier: Apache-2.0
//
// What the training loop tells while it goes on, and whom: the reports of steps, epochs and checkpoints, and
// the Observer that hears of them. reports/ and run.cpp have observers that print and write.
#ifndef TRAINER_TRAINING_OBSERVER_HPP
#define TRAINER_TRAINING_OBSERVER_HPP

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/base/result.hpp"
#include "trainer/training/schedule.hpp"
#include "trainer/training/step_log.hpp"

namespace dp::trainer {

struct EpochReport {
    std::int64_t epoch;                   // the first is 1
    double loss;                          // mean over the epoch's training samples of all ranks
    double test_loss;                     // mean over the test set, after the epoch
    std::optional<double> test_accuracy;  // 0..1, of models that classify
    double seconds;                       // of training, without the test
    double samples_per_second;            // of all ranks together
    std::int64_t skipped = 0;             // steps whose gradients were no numbers; not in `loss`
};

// How steps went, all ranks together.
struct LogReport {
    StepPlace place;  // of the last of them
    double loss;      // mean over the samples
    double seconds_per_step;
    double rate;           // learning rate of the last one
    double gradient_norm;  // of the last one, before it was clipped
    std::int64_t skipped;  // of the steps
};

// From where a training goes on.
struct ResumeReport {
    std::int64_t step;  // is made
    std::filesystem::path path;
    std::string precision, saved_precision;  // from now on, and until then
    std::string stopped_by = {};             // the signal that ended it there; "": none
    // All ranks together, from now on and until then; the latter 0 where it makes no difference.
    std::int64_t samples_at_once = 0, saved_samples_at_once = 0;
};

struct CheckpointReport {
    std::int64_t step;  // of the training
    std::filesystem::path path;
    double seconds;
    // Why it could not be written; "" on the ranks that did their part. The training goes on.
    std::optional<std::string> problem;
};

// What this rank does, as the host sees it: work that a GPU has been given counts where the host waits for
// it.
enum class Phase { idle, compute, load, communication, checkpoint };

// Is told how the training goes; its methods return at once.
class Observer {
 public:
    virtual ~Observer() = default;
    // Before the first step, when all else has been found good. Where it fails on a rank, none begins.
    virtual Result<void> on_begin() { return {}; }
    virtual void on_phase(Phase) {}                                                             // from now on
    virtual void on_step(std::int64_t epoch, std::int64_t step, const Schedule& schedule) = 0;  // from 1
    virtual void on_log(const LogReport& /*report*/, const Schedule& /*schedule*/) {}
    virtual void on_epoch(const EpochReport& report, const Schedule& schedule) = 0;
    virtual void on_resume(const ResumeReport& /*report*/, const Schedule& /*schedule*/) {}
    virtual void on_checkpoint(const CheckpointReport& /*report*/) {}
};

}  // namespace dp::trainer

#endif
