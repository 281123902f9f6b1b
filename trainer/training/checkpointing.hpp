// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints in the training loop: resumes from one if there is one, saves after each step if one is due,
// and stops if a signal asked for it. checkpointer.hpp writes them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpointer.hpp"
#include "trainer/checkpoint/stop.hpp"
#include "trainer/training/context.hpp"
#include "trainer/training/peer_copy.hpp"

namespace dp::trainer {

// What a checkpoint of this training has to have in common with it. The model need not be placed.
Continuation continuation_of(const ModelInfo& info, const Model& model, const Dataset& data,
                             const Settings& settings, const Schedule& schedule, std::int64_t world);

class Checkpointing {
 public:
    // Every rank makes one.
    // `copy`: what is restored besides, or nullptr.
    Checkpointing(const TrainingContext& run, const Optimizer& optimizer, const PeerCopy* copy);

    // The progress, if it resumes from a checkpoint, which sets parameters and optimizer. Every rank calls.
    Result<std::optional<Progress>> restore();

    // For a training that goes on without it: only the directory is made ready. Every rank calls.
    Result<void> prepare();

    // After each step. Calls `progress` on all ranks if a checkpoint is written. An error ends the training;
    // so does Fault::stopped. `is_end`: it is the last step, though not of the schedule. Every rank calls.
    Result<void> after_step(std::int64_t step, const std::function<Progress()>& progress,
                            bool is_end = false);

    // At the end of a training that stops between steps, before the end of its schedule. Every rank calls.
    Result<void> at_end(std::int64_t step, const Progress& progress);

    // After a step restored from a peer's memory: its checkpoint may be missing. Every rank calls.
    Result<void> catch_up(const Progress& progress);

    // Waits for the checkpoint that is written in the background, if there is one. Every rank calls.
    Result<void> finish();

    std::int64_t written() const { return written_; }
    bool newest_is_saved() const { return newest_is_saved_; }

 private:
    const TrainingContext& run_;
    Checkpointer checkpointer_;
    StopAgreement stop_;
    std::int64_t written_ = 0;
    bool newest_is_saved_ = true;
    std::int64_t saved_step_ = 0;
    // Of what is written in the background.
    struct Begun {
        std::int64_t step;
        std::chrono::steady_clock::time_point at;
        double seconds;  // for which it held the training
    };
    std::optional<Begun> begun_;

    Result<bool> save(std::int64_t step, const Progress& progress, const std::string& stopped_by);
    Result<void> begin(std::int64_t step, const Progress& progress);
    Result<bool> report(std::int64_t step, const Result<void>& saved, double seconds,
                        std::optional<double> held);
};

}  // namespace dp::trainer
