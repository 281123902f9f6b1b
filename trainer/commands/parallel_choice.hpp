// SPDX-License-Identifier: Apache-2.0
//
// How the ranks divide the model.
#pragma once

#include "base/model_parallel.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/models/model.hpp"
#include "trainer/parallel/launch_context.hpp"

namespace dp::trainer {

// Pure, of completed(): as the options say, else as the step does (srun's --dp-tensor). Errors name the nearest that works.
Result<ModelParallel> choose_parallel(const Options& options, const ModelInfo& info,
                                      const LaunchContext& here, std::int64_t ranks);

// Pure: the part of a rank of the world.
Layout layout_of(const ModelParallel& parallel, std::int64_t rank);

}  // namespace dp::trainer
