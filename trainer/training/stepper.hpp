// SPDX-License-Identifier: Apache-2.0
//
// One step of a training after the other: the gradients of all its batches and ranks, and what the optimizer
// makes of them.
#ifndef TRAINER_TRAINING_STEPPER_HPP
#define TRAINER_TRAINING_STEPPER_HPP

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/base/partition.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/training/all_ranks.hpp"
#include "trainer/training/device_samples.hpp"
#include "trainer/training/gradient_guard.hpp"
#include "trainer/training/gradient_norm.hpp"
#include "trainer/training/gradient_reducer.hpp"
#include "trainer/training/optimizer.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

class Stepper {
 public:
    // Of a model that is placed. All must outlive this. Every rank makes one.
    Stepper(Model& model, const Samples& train, const Settings& settings, const Schedule& schedule,
            Device& device, Communicator& communicator, Observer& observer);

    // Makes the step of that number (in the training, from 1) from the samples that `indices` names, i32
    // [batch * accumulate]; one whose gradients are no numbers is skipped where the settings say so. Every
    // rank calls.
    Result<void> step(const Tensor& indices, std::int64_t number, const AllRanks& ranks);

    // An epoch begins, or goes on from where a checkpoint has left it.
    void begin_epoch(const Metrics& until_now);
    // This rank's in this epoch, without the steps that were skipped. Waits for the device.
    Metrics metrics();
    // Of the last step, all ranks' gradients before they were clipped; where there is a log. Every rank
    // calls.
    Result<double> gradient_norm();
    std::int64_t skipped() const { return skipped_; }  // steps of the training
    std::int64_t bad_in_a_row() const { return guard_ ? guard_->bad_in_a_row() : 0; }

    // For checkpoints.
    const Optimizer& optimizer() const { return *optimizer_; }
    // After so many steps, of which so many were skipped and those in a row until the last one; the
    // parameters have been set. Every rank calls.
    Result<void> resume(std::int64_t steps, std::int64_t skipped, std::int64_t bad_in_a_row);

 private:
    Model& model_;
    const Settings& settings_;
    const Schedule& schedule_;
    Device& device_;
    Communicator& communicator_;
    Observer& observer_;
    DeviceSamples samples_;
    Shard node_part_;  // of the values, that this rank looks after for its node
    std::unique_ptr<Optimizer> optimizer_;
    GradientReducer reducer_;
    Tensor sum_;        // of gradients, where batches are accumulated
    Tensor gradients_;  // what the last step was made from: those of all batches and ranks
    Tensor metrics_;    // f64 [2]: of the epoch, or of a step where they are guarded
    std::optional<GradientGuard> guard_;
    Metrics guarded_;                   // of the epoch's good steps, where there is a guard
    std::optional<GradientNorm> norm_;  // for the log, where there is no guard that knows it
    std::int64_t skipped_ = 0;

    Result<void> make_gradients(const Tensor& indices, std::int64_t number, const AllRanks& ranks);
    Result<void> share_values();
    Result<void> gather_values();
};

}  // namespace dp::trainer

#endif
