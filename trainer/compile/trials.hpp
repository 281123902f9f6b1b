// SPDX-License-Identifier: Apache-2.0
//
// Runs a few training steps to measure their time and memory, also with fewer threads: a small batch is not
// worth waking all of them. compile.cpp calls it; a run gets the number of threads as a tuned choice.
#pragma once

#include <span>

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

struct ThreadTrial {
    int threads;
    StepTime step;
};

// Times steps of the CPU device with all threads, half of them, … and 1, until fewer are clearly slower.
// Afterwards, a CPU device opened on this thread before must not be used.
Result<std::vector<ThreadTrial>> try_threads(const Trial& trial, int threads, double seconds);

// Pure: whether other programs used the CPUs meanwhile, which makes fewer threads look fast.
bool is_disturbed(std::span<const ThreadTrial> trials);

// Pure: the fastest if it is a twentieth faster than the first, the default, and none was disturbed.
ThreadTrial best_of(std::span<const ThreadTrial> trials);

}  // namespace dp::trainer
