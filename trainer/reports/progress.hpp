// SPDX-License-Identifier: Apache-2.0
//
// The line that a person watches while steps are made: how far it is, how fast, and when it is over. Pure;
// report.cpp draws it.
#ifndef TRAINER_REPORTS_PROGRESS_HPP
#define TRAINER_REPORTS_PROGRESS_HPP

#include <cstdint>
#include <string>

#include "trainer/training/schedule.hpp"

namespace dp::trainer {

struct Pace {
    std::int64_t epoch;  // from 1
    std::int64_t done;   // steps of the training
    // Since the first step that this process made, which is left out of the rate: it is slower than others.
    std::int64_t steps;
    double seconds;
};

// "epoch 1/5  step 247/3247  [##                  ]   8 %  [00:04<00:59, 50.76it/s]", with time gone and time
// left, as Python's tqdm has them.
std::string progress_line(const Pace& pace, const Schedule& schedule);

}  // namespace dp::trainer

#endif
