// SPDX-License-Identifier: Apache-2.0
//
// `trainer compile`: does for a model, a batch and a device what a run would do before its first step, tries
// what is fastest, and keeps all of it for runs with the same options. main.cpp calls it.
#ifndef TRAINER_COMMANDS_COMPILE_HPP
#define TRAINER_COMMANDS_COMPILE_HPP

#include <chrono>

#include "trainer/base/result.hpp"
#include "trainer/commands/options.hpp"

namespace dp::trainer {

// Started on several nodes, on each node one process does the work for it, and rank 0 says what was done.
Result<void> compile(const Options& options, std::chrono::steady_clock::time_point started);

}  // namespace dp::trainer

#endif
