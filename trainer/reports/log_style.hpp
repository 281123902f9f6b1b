// SPDX-License-Identifier: Apache-2.0
//
// Log lines in the formats of PyTorch's examples, Megatron-LM and SambaNova's applications, so that tools for
// their logs can read ours. Pure.
#pragma once

#include "trainer/training/training.hpp"

namespace dp::trainer {

enum class LogStyle { plain, pytorch, megatron, samba };

// Whether the style prints steps, and its default interval in steps.
bool tells_steps(LogStyle style);
inline constexpr std::int64_t kLogInterval = 100;

// `samples`: the size of the training set; `batch`: samples per rank and step.
std::string pytorch_line(const LogReport& report, const Schedule& schedule, std::int64_t samples,
                         std::int64_t batch);
std::string megatron_line(const LogReport& report, const Schedule& schedule);
std::string megatron_test_line(std::int64_t step, double loss, const std::optional<double>& perplexity);

// At the end of a training. Samples per second are those of all ranks together, whoever prints them.
std::string samba_line(const Outcome& outcome);
std::string samba_summary(const Outcome& outcome);

}  // namespace dp::trainer
