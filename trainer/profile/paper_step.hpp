// SPDX-License-Identifier: Apache-2.0
//
// A training step of any model on a device that does nothing (PaperDevice): which operations it has, with their shapes. It takes
// milliseconds and no memory, however large the model is. For `trainer info --roofline`.
#pragma once

#include "trainer/models/model.hpp"
#include "trainer/profile/recorder.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// Records the step that one rank takes alone. `recorder` is of the first step, and has recorded nothing. The norm of the gradients
// is 0, so they are not clipped.
Result<void> record_paper_step(const ModelInfo& info, const ModelShape& shape, const Settings& settings,
                               ProfileRecorder& recorder);

}  // namespace dp::trainer
