// SPDX-License-Identifier: Apache-2.0
//
// Finds the fastest number of threads for the CPU device: a small batch is not worth waking all of them.
// compile.cpp calls it; a run gets the number as a tuned choice.
#pragma once

#include <span>
#include <vector>

#include "trainer/compile/steps.hpp"

namespace dp::trainer {

struct ThreadTrial {
    int threads;
    StepTime step;
};

// Pure: all threads, half of them, … and 1.
std::vector<int> thread_candidates(int threads);

// Pure: whether other programs used the CPUs meanwhile. Threads that wait for each other then take many times
// as long, which makes fewer threads look fast.
bool is_disturbed(std::span<const ThreadTrial> trials);

// Pure: the fastest; but the first, which is the default, unless another one is clearly faster (by a
// twentieth) and nothing disturbed the trials. At least one trial.
ThreadTrial best_of(std::span<const ThreadTrial> trials);

// Times steps with each candidate in order, until fewer threads are clearly slower. Afterwards, a CPU device
// opened on this thread before must not be used. `seconds`: as in time_steps().
Result<std::vector<ThreadTrial>> try_threads(const Trial& trial, int threads, double seconds);

}  // namespace dp::trainer
