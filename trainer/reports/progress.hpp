// SPDX-License-Identifier: Apache-2.0
//
// The progress line: how far the training is, how fast, and when it will be done. Pure; report.cpp draws it.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/training/schedule.hpp"

namespace dp::trainer {

struct Pace {
    std::int64_t epoch;  // from 1
    std::int64_t done;   // steps of the training
    // Since this process's first step, which does not count towards the rate: it is slower than others.
    std::int64_t steps;
    double seconds;
};

// "epoch 1/5  step 247/3247  [##                  ]   8 %  [00:04<00:59, 50.76it/s]": elapsed and remaining
// time in tqdm's format.
std::string progress_line(const Pace& pace, const Schedule& schedule);

}  // namespace dp::trainer
