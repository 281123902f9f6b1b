// SPDX-License-Identifier: Apache-2.0
//
// The training loop: sample, forward, backward, average the gradients, step. run.cpp calls it with real
// devices and ranks, the tests with threads for ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/base/ranks.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/observer.hpp"
#include "trainer/training/schedule.hpp"
#include "trainer/training/settings.hpp"
#include "trainer/training/survival.hpp"

namespace dp::trainer {

struct Outcome {
    Schedule schedule;
    EpochReport last;
    double train_seconds;       // all epochs, without the tests; of the slowest rank
    double samples_per_second;  // of all ranks together
    std::int64_t skipped = 0;   // steps
    // Steps taken before the checkpoint it resumed from; not part of seconds and samples per second.
    std::int64_t resumed = 0;
    std::int64_t checkpoints = 0;  // written
    bool end_is_saved = true;      // false: the last of them could not be written
    // Of a training that ended early; `schedule` then has the steps and epochs that it took.
    std::optional<BestTest> stopped_after;
    Survival::Totals recovered;  // from deaths
    // Of a pipeline: the part of the time of their passes in which its ranks waited for each other, their mean.
    std::optional<double> bubble;
    std::vector<float> parameters;
    std::uint64_t parameters_hash;
    bool equal_on_all_ranks;  // every rank's hash is the same
};

// Trains `model`, which is not placed yet or was used by the training that `survival` holds. Every rank calls it with the
// same settings and data. `survival`: null if no process survives a death.
Result<Outcome> train(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                      Device& device, const Ranks& ranks, Observer& observer, Survival* survival = nullptr);

// Places the model on the device, with room for training and test batches. Without a seed its values are the caller's to set.
void place_model(Model& model, const Settings& settings, std::optional<std::uint64_t> seed, Device& device);

// Repeats a training step on the same batch, to measure it. The observer hears of each. Every rank calls.
Result<void> repeat_step(const ModelInfo& info, Model& model, const Dataset& data, const Settings& settings,
                         Device& device, const Ranks& ranks, std::int64_t steps, Observer& observer);

}  // namespace dp::trainer
