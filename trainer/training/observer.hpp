// SPDX-License-Identifier: Apache-2.0
//
// The training loop's events: reports of steps, epochs and checkpoints, and the Observer that receives them.
// reports/ and run.cpp have observers that print and write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/training/schedule.hpp"
#include "trainer/training/step_log.hpp"

namespace dp::trainer {

struct EpochReport {
    std::int64_t epoch;                          // the first is 1
    double loss;                                 // mean over the epoch's training samples of all ranks
    double test_loss;                            // mean over the test set, after the epoch
    std::optional<double> test_accuracy;         // 0..1, of models that classify
    double seconds;                              // of training, without the test
    double samples_per_second;                   // of all ranks together
    std::int64_t skipped = 0;                    // steps with NaN or infinite gradients; not in `loss`
    std::optional<double> test_perplexity = {};  // exp(test_loss), of models of tokens
};

// A test within an epoch (--eval-interval).
struct TestReport {
    StepPlace place;                             // after this step
    double loss;                                 // mean over the test set, or over what of it was used
    std::optional<double> accuracy, perplexity;  // as in EpochReport
    double seconds;
};

// How some steps went, all ranks together.
struct LogReport {
    StepPlace place;  // of the last of them
    double loss;      // mean over the samples
    double seconds_per_step;
    double rate;           // learning rate of the last one
    double gradient_norm;  // of the last one, before it was clipped
    std::int64_t skipped;  // of the steps
};

// How this rank's steps went since the last such report, or since the epoch began. It asks nothing of other ranks.
struct ProgressReport {
    StepPlace place;  // of the last of them
    // The mean over this rank's samples; NaN if all steps were skipped. nullopt: another stage of the pipeline has it.
    std::optional<double> loss;
    double samples_per_second;  // of all ranks together
};

// Where a training resumes.
struct ResumeReport {
    std::int64_t step;  // is made
    std::filesystem::path path;
    std::string precision, saved_precision;  // from now on, and until then
    std::string stopped_by = {};             // the signal that ended it there; "": none
    // Samples that all ranks process at once, from now on and until now (0: it makes no difference).
    std::int64_t samples_at_once = 0, saved_samples_at_once = 0;
};

// How a training recovered from deaths.
struct RecoveryReport {
    std::int64_t step = 0;                 // is made
    std::vector<std::int64_t> from;        // the rank that gave each part; none: not all of it was left
    std::optional<std::int64_t> repeated;  // steps; nullopt: no process has survived that would know
    double seconds = 0;                    // since the first survivor heard of the death
};

struct CheckpointReport {
    std::int64_t step;  // of the training
    std::filesystem::path path;
    double seconds;
    std::optional<double> held;  // of these, for how long the training waited; nullopt: for all
    // Why it could not be written; "" on ranks that did their part. The training continues.
    std::optional<std::string> problem;
};

// What this rank does, as the host sees it: queued GPU work counts where the host waits for it.
enum class Phase { idle, compute, load, communication, checkpoint };

// Receives the training's events; its methods return at once.
class Observer {
 public:
    virtual ~Observer() = default;
    // Before the first step, after all other checks. If it fails on one rank, no rank begins.
    virtual Result<void> on_begin() { return {}; }
    virtual void on_step_begin() {}  // on_step() ends it
    virtual void on_phase(Phase) {}  // from now on
    virtual void on_step(std::int64_t /*epoch*/, std::int64_t /*step*/, const Schedule&) {}  // from 1
    virtual void on_log(const LogReport& /*report*/, const Schedule& /*schedule*/) {}
    // About once a second and at the end of each epoch, if it is wanted: it may wait for the device.
    virtual bool wants_progress() const { return false; }
    virtual void on_progress(const ProgressReport& /*report*/) {}
    virtual void on_epoch(const EpochReport& /*report*/, const Schedule& /*schedule*/) {}
    virtual void on_test(const TestReport& /*report*/, const Schedule& /*schedule*/) {}
    // It ends before its last step (Settings::early_stopping): a sentence.
    virtual void on_early_stop(const std::string& /*why*/) {}
    // Whether Settings::begin_with is what it begins with: a sentence.
    virtual void on_given_values(const std::string& /*what*/) {}
    virtual void on_resume(const ResumeReport& /*report*/, const Schedule& /*schedule*/) {}
    // Ranks had died, and the training goes on.
    virtual void on_recovery(const RecoveryReport& /*report*/) {}
    // A checkpoint is damaged, and an older one is taken: on the rank that found it so.
    virtual void on_damaged(const std::string& /*what*/) {}
    virtual void on_checkpoint(const CheckpointReport& /*report*/) {}
};

}  // namespace dp::trainer
