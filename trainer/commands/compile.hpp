// SPDX-License-Identifier: Apache-2.0
//
// `trainer compile`: does, for a model, a batch and a device, what a run would do before its first step,
// finds the fastest choices, and keeps the results for runs with the same options. Called by main.cpp.
#pragma once

#include <chrono>

#include "trainer/base/result.hpp"
#include "trainer/commands/options.hpp"

namespace dp::trainer {

// On several nodes, one process per node does the work, and rank 0 reports.
Result<void> compile(const Options& options, std::chrono::steady_clock::time_point started);

}  // namespace dp::trainer
