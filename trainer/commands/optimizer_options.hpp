// SPDX-License-Identifier: Apache-2.0
//
// The options of the optimizers' rules, spelled as Megatron-LM spells them; options.cpp adds them to the
// command line.
#ifndef TRAINER_COMMANDS_OPTIMIZER_OPTIONS_HPP
#define TRAINER_COMMANDS_OPTIMIZER_OPTIONS_HPP

#include <optional>

#include "trainer/training/optimizer.hpp"

namespace CLI {
class App;
}

namespace dp::trainer {

// What was not said is empty, and OptimizerConstants' defaults hold.
struct OptimizerOptions {
    std::optional<double> beta1, beta2, epsilon, momentum;
    bool shard = false;
};

void add_optimizer_options(CLI::App& app, OptimizerOptions& options);

OptimizerConstants constants_of(const OptimizerOptions& options);

// Throws CLI's error where one was said of another optimizer than that of the run.
void refuse_foreign_constants(const OptimizerOptions& options, Optimization kind);

}  // namespace dp::trainer

#endif
