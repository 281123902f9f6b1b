// SPDX-License-Identifier: Apache-2.0
//
// The configuration of a training, independent of model and data. commands/option_rows.cpp fills it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"
#include "trainer/checkpoint/plan.hpp"
#include "trainer/models/layout.hpp"
#include "trainer/models/parameters.hpp"
#include "trainer/training/learning_rate.hpp"
#include "trainer/training/optimizer.hpp"
#include "trainer/training/pipeline_schedule.hpp"

namespace dp::trainer {

// Of a model's activations. Parameters are always learnt in fp32 (see ParameterSet).
enum class Precision { fp32, bf16 };
constexpr std::string_view name_of(Precision precision) {
    return precision == Precision::bf16 ? "bf16" : "fp32";
}
constexpr Type type_of(Precision precision) {
    return precision == Precision::bf16 ? Type::bf16 : Type::f32;
}

// Values that the parameters begin with instead of those that the seed draws.
struct GivenValues {
    std::string name;  // what the user gave, for messages
    // Sets the parameters, which have been placed, and returns a hash of the values: it is compared among the ranks.
    std::function<Result<std::uint64_t>(const ParameterSet&, Device&)> read;
};

struct Settings {
    // Ends after this many, or after max_steps, whichever comes first; nullopt: as many as max_steps need.
    std::optional<std::int64_t> epochs = 1;
    std::int64_t batch = 1;  // a rank's
    LrSchedule rate;
    double weight_decay = 0;
    std::optional<double>
        ema_decay;  // of an average of the parameters, which is saved besides (optimizer.hpp)
    OptimizerConstants constants;
    bool shard_optimizer = false;  // its state is shared out among the ranks (optimizer.hpp)
    // Above 0, if the training survives deaths, another rank keeps a copy of each part of a sharded optimizer, updated
    // in every step (peer_copy.hpp).
    std::int64_t peer_copy = 0;
    std::int64_t accumulate = 1;  // batches of a rank that make a step, whose gradients are added up
    PipelineSchedule pipeline_schedule =
        PipelineSchedule::one_forward_one_backward;  // where there are stages
    std::int64_t virtual_stages = 1;                 // of each stage of an interleaved schedule
    PipelineSplit pipeline_split;                    // of the layers among them
    bool sequence_parallel = false;  // ranks that divide the layers divide the tokens, too (Layout)
    std::optional<double> clip;   // the largest norm of all gradients together; larger ones are scaled down
    bool skip_bad_steps = false;  // those with NaN or infinite gradients; so is it with `clip`
    Optimization optimizer = Optimization::adam;
    Precision precision = Precision::fp32;
    std::uint64_t seed = 1;
    std::optional<std::int64_t> max_steps;  // of the optimizer
    // A LogReport every `log_every` steps, about all of them; 0: none. With `log_single`, reports cover a
    // single step: the first of an epoch and each `log_every`-th after it.
    std::int64_t log_every = 0;
    bool log_single = false;
    // Tests every so many steps, too, not only after each epoch (0: it does not), on so many batches of each rank (0: all).
    std::int64_t test_every = 0, test_batches = 0;
    // Ends after so many tests in a row without a smaller loss (early_stopping.hpp); 0: it does not.
    std::int64_t early_stopping = 0;
    CheckpointPlan checkpoints;
    std::optional<GivenValues> begin_with;  // unless the training resumes from a checkpoint

    // What a stage of so many does in each step.
    Passes passes(std::int64_t stage, std::int64_t stages) const {
        return {pipeline_schedule, stage, stages, virtual_stages, accumulate};
    }
};

}  // namespace dp::trainer
