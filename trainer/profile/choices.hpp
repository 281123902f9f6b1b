// SPDX-License-Identifier: Apache-2.0
//
// Tries what a profile may advise: other numbers of threads, larger batches, no recomputing. What it finds is measured, of a rank
// that trains alone.
#pragma once

#include "trainer/compile/trials.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/profile/advice.hpp"

namespace dp::trainer {

struct TriedTraining {
    Trial trial;
    MemoryCase memory;
    int threads, cpus;       // that a rank has, and may have
    std::int64_t available;  // bytes of memory besides what the training holds
    bool deterministic;
};

// Adds the trials to `now`, of a CPU; takes some seconds. What was not tried, or was disturbed, is said in `now`. Afterwards the
// device on this thread must adopt() its choices again.
void try_choices(const TriedTraining& training, AdviceCase& now);

// Pure: the largest batch for which memory of that size is enough, and the data; a multiple of the batch by a power of two.
std::int64_t largest_batch(const MemoryCase& memory, std::int64_t available, std::int64_t samples);

}  // namespace dp::trainer
