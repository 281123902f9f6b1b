// SPDX-License-Identifier: Apache-2.0
//
// How many steps a training makes, and how many samples each of them takes. Pure.
#ifndef TRAINER_TRAINING_SCHEDULE_HPP
#define TRAINER_TRAINING_SCHEDULE_HPP

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/base/result.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

struct Schedule {
    std::int64_t steps_per_epoch;
    std::int64_t total_steps;
    std::int64_t epochs;        // that are begun; the last may be cut short by max_steps
    std::int64_t global_batch;  // batch * accumulate * world
};

// An error where a global batch is larger than the data set, because then no step would ever be made,
// and where the learning rate would end above its largest.
Result<Schedule> make_schedule(const Settings& settings, std::int64_t samples, std::int64_t world);

// What a person is told before a training that --epochs ends before --steps are made; nullopt: it is not so.
std::optional<std::string> steps_left_out(const Settings& settings, const Schedule& schedule);

// Samples that a rank tests at a time, of a model with so many activations a sample.
std::int64_t test_batch_of(std::int64_t activations_per_sample, std::int64_t batch);

}  // namespace dp::trainer

#endif
