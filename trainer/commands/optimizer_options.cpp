// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/optimizer_options.hpp"

#include <fmt/format.h>

#include "trainer/command_line/checks.hpp"

namespace dp::trainer {

void add_optimizer_options(CLI::App& app, OptimizerOptions& options) {
    const OptimizerConstants defaults;
    const auto said = [](const char* what, double value) {
        return fmt::format("{} (default: {})", what, value);
    };
    app.add_option("--adam-beta1", options.beta1,
                   said("adam: how much of the mean gradient stays from step to step", defaults.beta1))
        ->check(number(0, 1, "0.9"))
        ->type_name("X");
    app.add_option("--adam-beta2", options.beta2, said("adam: the same of the mean square", defaults.beta2))
        ->check(number(0, 1, "0.95"))
        ->type_name("X");
    // Less would be 0 in 32 bits, and a gradient of 0 divided by it no number.
    app.add_option("--adam-eps", options.epsilon,
                   said("adam: added to the root of the mean square", defaults.epsilon))
        ->check(number(1e-30, 1e9, "1e-8"))
        ->type_name("X");
    app.add_option("--sgd-momentum", options.momentum,
                   said("sgd: how much of the last update stays", defaults.momentum))
        ->check(number(0, 1, "0.9"))
        ->type_name("X");
    app.add_flag(
        "--shard-optimizer,--use-distributed-optimizer", options.shard,
        "share the optimizer's state out among the ranks (ZeRO's first stage): less memory, the same "
        "parameters to the bit");
}

OptimizerConstants constants_of(const OptimizerOptions& options) {
    const OptimizerConstants defaults;
    return {options.beta1.value_or(defaults.beta1), options.beta2.value_or(defaults.beta2),
            options.epsilon.value_or(defaults.epsilon), options.momentum.value_or(defaults.momentum)};
}

void refuse_foreign_constants(const OptimizerOptions& options, Optimization kind) {
    const auto refuse = [](const char* option, std::string_view of, std::string_view here) {
        throw CLI::ValidationError(
            option,
            fmt::format("is {}'s, and this run has {}; leave it out, or give --optimizer={}", of, here, of));
    };
    if (kind == Optimization::adam) {
        if (options.momentum) refuse("--sgd-momentum", "sgd", "adam");
        return;
    }
    if (options.beta1) refuse("--adam-beta1", "adam", "sgd");
    if (options.beta2) refuse("--adam-beta2", "adam", "sgd");
    if (options.epsilon) refuse("--adam-eps", "adam", "sgd");
}

}  // namespace dp::trainer
