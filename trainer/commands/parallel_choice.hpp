// SPDX-License-Identifier: Apache-2.0
//
// How the ranks divide the model.
#pragma once

#include <memory>
#include <vector>

#include "base/model_parallel.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/models/model.hpp"
#include "trainer/parallel/launch_context.hpp"

namespace dp::trainer {

// Pure, of completed(): as the options say, else as the step does (srun's --dp-tensor and --dp-pipeline). Errors name the nearest
// that works.
Result<ModelParallel> choose_parallel(const Options& options, const ModelInfo& info,
                                      const LaunchContext& here, std::int64_t ranks);

// Pure: options of the schedule that belong together.
Result<void> check_schedule(const Options& options);

// Pure: a pipeline wants at least as many micro-batches as it has stages, and twice as many are better. Where neither --batch-size
// nor --accumulate says how many there are, the default batch is divided.
void choose_micro_batches(Options& options, const ModelParallel& parallel);

// Pure, of the layout that a rank has: the part of a step's passes in which stages wait, the mean of all.
double predicted_bubble(const GptShape& shape, const Settings& training);

// Pure: of a step's micro-batches, their number is a multiple of this.
std::int64_t micro_batches_at_a_time(const Settings& training, const ModelParallel& parallel);

// Pure: of --peer-copy where no rank can have a copy; nullopt where it was not given.
std::optional<std::string> peer_copy_without_effect(const Options& options, const ModelParallel& parallel);

// All stages of a pipeline with --pipeline-split=even, as advice on memory wants them; none where the layers are divided so
// already, or a stage would have nothing to learn. `shape`: with the layout of any rank.
std::vector<std::unique_ptr<Model>> evenly_split(const ModelInfo& info, ModelShape shape,
                                                 const Settings& training);

// Pure: the part of a rank of the world.
Layout layout_of(const ModelParallel& parallel, std::int64_t rank, const Settings& training);

}  // namespace dp::trainer
