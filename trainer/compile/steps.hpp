// SPDX-License-Identifier: Apache-2.0
//
// A few steps of a training, to see how long one takes and what memory it needs. compile.cpp and threads.cpp
// call it.
#ifndef TRAINER_COMPILE_STEPS_HPP
#define TRAINER_COMPILE_STEPS_HPP

#include "trainer/base/result.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// Of a rank that trains alone.
struct Trial {
    const ModelInfo& info;
    const ModelShape& shape;
    const Dataset& data;
    const Settings& settings;
};

struct StepTime {
    double seconds;  // the median of a step
    // The part of the time in which this thread had a CPU: less than 1 where other programs used them, too.
    double share;
};

// Of as many steps as take `seconds` (3 to 200, after one to warm up); where already the second takes longer,
// of that one. All that a training allocates is allocated, and given back.
Result<StepTime> time_steps(const Trial& trial, Device& device, double seconds);

}  // namespace dp::trainer

#endif
