// SPDX-License-Identifier: Apache-2.0
//
// Takes the steps of a training: the gradients of all batches and ranks, and the optimizer's step with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/checkpoint/manifest.hpp"
#include "trainer/devices/step_capture.hpp"
#include "trainer/training/context.hpp"
#include "trainer/training/copied_gradients.hpp"
#include "trainer/training/device_samples.hpp"
#include "trainer/training/global_metrics.hpp"
#include "trainer/training/gradient_norm.hpp"
#include "trainer/training/gradient_reducer.hpp"
#include "trainer/training/optimizer.hpp"
#include "trainer/training/peer_copy.hpp"
#include "trainer/training/step_marks.hpp"

namespace dp::trainer {

class TrainStep {
 public:
    // Every rank makes one.
    explicit TrainStep(const TrainingContext& run);

    // Takes step `number` (of the training, from 1) with batch * accumulate samples. Skips it if its
    // gradients are NaN or infinite and the settings say so. Every rank calls.
    Result<void> step(const SampleChoice& samples, std::int64_t number, const GlobalMetrics& ranks);

    // Those of the next step.
    void expect(const SampleChoice& samples) const { samples_.expect(samples); }

    // Begins an epoch, or continues the one that was interrupted.
    void begin_epoch(const Metrics& until_now, std::int64_t skipped_in_epoch);
    // This rank's metrics of this epoch, without skipped steps. Waits for the device.
    Metrics metrics();
    // The norm of the last step's gradients before clipping; only if steps are logged. Every rank calls.
    Result<double> gradient_norm();
    // Steps of the training. Waits for the device.
    std::int64_t skipped() {
        settle();
        return skipped_;
    }
    // The part of the time of its passes, and of the exchange of the shared embedding's gradient, in which this rank waited for its neighbours in the pipeline, until now; 0 without one. Of the
    // first step, which prepares each product and connection, only as long as there is no other.
    double bubble() const {
        const PassTimes& of = later_.seconds > 0 ? later_ : first_;
        return of.seconds > 0 ? of.waited / of.seconds : 0;
    }
    // All ranks have ended the training: too many steps in a row were bad.
    bool has_given_up() const;
    std::int64_t skipped_in_epoch() { return skipped() - skipped_before_; }
    // After that step.
    Progress progress(std::int64_t step);

    // For checkpoints and recovery.
    const Optimizer& optimizer() const { return optimizer_; }
    const Shard& node_part() const { return node_part_; }
    // Of another rank's part of a sharded optimizer; nullptr if there is none.
    const PeerCopy* copy() const { return copy_ ? &*copy_ : nullptr; }
    // Parameters and optimizer are about to be restored; until resume(), they are not whole. Restores the counters.
    void begin_restore() { marks_.begin(); }
    Result<void> resume(const Progress& progress);
    // After a peer's death, with TrainingContext::keeps_state and once no rank trains any more: how far the parameters
    // and the optimizer are, nullopt if they are not whole; and the buffers then, which a later step may have begun to
    // change. Parts that ranks of this node had still to update, with gradients that all had summed, are updated by
    // complete(), on one of them. With a sharded optimizer all this is about the rank's own part and its copy of another,
    // and each completes these.
    std::optional<Progress> held();
    void complete();
    bool has_to_complete() const;
    // With a sharded optimizer, if no step may be skipped: takes the step whose sums failed on this node only, with the
    // sums() of a rank that has them.
    bool can_follow() const { return copy_ && !skips_bad_steps_; }
    std::vector<float> sums() const { return run_.device.values_of<float>(gradients_); }
    void follow(const std::vector<float>& sums);
    std::int64_t reached() const { return held_.progress.step; }  // by this rank
    const std::vector<float>& held_buffers() const { return held_.buffers; }

 private:
    const TrainingContext& run_;
    StepCapture* const capture_;  // the device, if it is one
    DeviceSamples samples_;
    Shard node_part_;  // of the values, that this rank looks after for its node
    // With --deterministic, where the communicator can: micro-batch by micro-batch, and of each in the order of the ranks.
    // So a smaller world, whose ranks have more micro-batches each, gets the same bits.
    bool adds_in_order_;
    std::vector<Turn> turns_;  // of each step
    Optimizer optimizer_;
    std::optional<PeerCopy> copy_;
    GradientReducer reducer_;
    CopiedGradients copied_;
    Tensor sum_;        // of gradients, where batches are accumulated or added in order
    Tensor gradients_;  // what the last step was made from: those of all batches and ranks
    // With --clip-grad or --skip-bad-steps, a step with NaN or infinite gradients is skipped. All ranks have
    // the same gradients and so decide alike: on the device, and the host hears of it while the device is at the next step.
    bool skips_bad_steps_;
    // Whether the host has to know before the next step: an average of the values takes several operations, which the device cannot
    // skip, and for a recovery the state must be known after each step.
    bool settles_at_once_;
    Tensor found_;     // f64 [2 + kClipping]: what a step that may be skipped leaves for the host
    Tensor metrics_;   // f64 [2]: of the epoch, or the first numbers of found_
    Tensor clipping_;  // the others; empty if no step may be skipped
    std::unique_ptr<Download> download_;
    bool is_pending_ = false;           // found_ is on its way
    bool is_updated_ = false;           // the step that it is of has been queued
    Metrics unskipped_;                 // of the epoch's other steps, if steps may be skipped
    std::optional<GradientNorm> norm_;  // to clip or skip, or for the log
    double last_norm_ = 0;              // if steps may be skipped
    std::int64_t skipped_ = 0, bad_in_a_row_ = 0;
    std::int64_t skipped_before_ = 0;  // this epoch
    struct PassTimes {
        double seconds = 0, waited = 0;  // of those `seconds`
    };
    PassTimes first_, later_;  // of the first step, and of all others
    Tensor exchanged_;         // some of the gradients that the other end of the pipeline has a part of
    StepMarks marks_;
    struct {
        Progress progress;
        bool is_skipped = false;
        std::vector<float> buffers;
    } held_;

    void make_sum();
    const Parameter* shared_parameter() const;
    Result<void> add_other_end(PassTimes& times);
    Result<Batch> batch_of(const Turn& turn, const SampleChoice& samples, std::int64_t number);
    void pass(const Turn& turn, const Batch& batch);
    void keep_gradients(const Turn& turn);
    Result<void> make_gradients(const SampleChoice& samples, std::int64_t number, const GlobalMetrics& ranks);
    Result<Tensor> reduced();
    Result<void> clip();
    void settle();
    Result<bool> is_usable(std::int64_t number, const GlobalMetrics& ranks);
    void update(std::int64_t number);
    void hold(std::int64_t step);
    double rate(std::int64_t number) const;
    Result<void> share_values();
    Result<void> gather_values();
};

}  // namespace dp::trainer
