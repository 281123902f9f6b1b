// SPDX-License-Identifier: Apache-2.0
//
// How many threads the CPU device is fastest with: a small batch is not worth waking all of them for.
// compile.cpp calls it; a run is given the number as a tuned choice.
#ifndef TRAINER_COMPILE_THREADS_HPP
#define TRAINER_COMPILE_THREADS_HPP

#include <span>
#include <vector>

#include "trainer/compile/steps.hpp"

namespace dp::trainer {

struct ThreadTrial {
    int threads;
    StepTime step;
};

// Pure: all of them, half of them, … and 1.
std::vector<int> thread_candidates(int threads);

// Pure: whether other programs used the CPUs meanwhile. Threads that wait for each other then take many times
// as long, and fewer of them look fast.
bool is_disturbed(std::span<const ThreadTrial> trials);

// Pure: the fastest; but the first, which is what there would be without a choice, unless another one is
// clearly faster (by a twentieth) and nothing disturbed. At least one trial.
ThreadTrial best_of(std::span<const ThreadTrial> trials);

// Steps with each of the candidates, in their order, as long as fewer are not clearly slower. What was opened
// on this thread as the CPU device is not to be used after it. `seconds`: as of time_steps().
Result<std::vector<ThreadTrial>> try_threads(const Trial& trial, int threads, double seconds);

}  // namespace dp::trainer

#endif
