// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of the trainer. main.cpp calls them.
#pragma once

#include <chrono>

#include "trainer/base/result.hpp"
#include "trainer/commands/options.hpp"

namespace dp::trainer {

// Trains, or measures how fast it would (measure-performance). `started`: when the process began.
Result<void> run(const Options& options, std::chrono::steady_clock::time_point started);

// Makes a data set ready; on each node one of its processes says so.
Result<void> prepare(const Options& options);

// Shows what a model needs.
Result<void> info(const Options& options);

// Shows in which ways ranks can divide a model, by the time that a step then takes.
Result<void> plan(const Options& options);

}  // namespace dp::trainer
