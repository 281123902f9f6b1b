// SPDX-License-Identifier: Apache-2.0
//
// What a world of ranks says of itself before it trains, as the log style has it. run.cpp calls it.
#pragma once

#include "base/model_parallel.hpp"
#include "dp/dp.h"
#include "trainer/reports/report.hpp"

namespace dp::trainer {

// Where the world is, and who is in it.
void introduce(Report& report, const dp_world& world, const ModelParallel& parallel, LogStyle style);

}  // namespace dp::trainer
