// SPDX-License-Identifier: Apache-2.0
//
// Runs a few training steps to measure their time and memory. Called by compile.cpp and threads.cpp.
#pragma once

#include "trainer/base/result.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// For a rank that trains alone.
struct Trial {
    const ModelInfo& info;
    const ModelShape& shape;
    const Dataset& data;
    const Settings& settings;
};

struct StepTime {
    double seconds;  // the median of a step
    // The fraction of time in which this thread had a CPU: less than 1 if other programs used the CPUs, too.
    double share;
};

// Times as many steps as take `seconds` (3 to 200, after a warm-up step); if the second step already takes
// longer, only that one. Allocates all that a training would, and frees it.
Result<StepTime> time_steps(const Trial& trial, Device& device, double seconds);

}  // namespace dp::trainer
