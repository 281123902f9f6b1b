// SPDX-License-Identifier: Apache-2.0
//
// How many steps a training takes, and how many samples are in each. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/models/model.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

struct Schedule {
    std::int64_t steps_per_epoch;
    std::int64_t total_steps;
    std::int64_t epochs;        // that are begun; the last may be cut short by max_steps
    std::int64_t global_batch;  // batch * accumulate * world
};

// Fails if the global batch is larger than the data set, because then no step would ever be taken, and if the
// learning rate would end above its maximum.
Result<Schedule> make_schedule(const Settings& settings, std::int64_t samples, std::int64_t world);

// Micro-batches per rank and step that keep the global batch when a world of `first` ranks has shrunk to `size`. If they do
// not divide, or are no multiple of `multiple_of`, the failure names the sizes that do.
Result<std::int64_t> accumulate_in(std::int64_t size, std::int64_t first, std::int64_t accumulate,
                                   std::int64_t multiple_of = 1);

// The message before a training that --epochs ends before --steps; nullopt if it does not.
std::optional<std::string> steps_left_out(const Settings& settings, const Schedule& schedule);

// Samples that a rank tests at a time, for a model with that many activations per sample.
std::int64_t test_batch_of(std::int64_t activations_per_sample, std::int64_t batch);
// For this model: of a stage of a pipeline, whose stages have to agree and do not have the same activations, the batch.
std::int64_t test_batch_of(const Model& model, std::int64_t batch);

}  // namespace dp::trainer
