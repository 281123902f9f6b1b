// SPDX-License-Identifier: Apache-2.0
//
// Lines as other trainers print them, so that what reads their logs reads ours: PyTorch's examples,
// Megatron-LM, and SambaNova's applications. Pure.
#ifndef TRAINER_REPORTS_LOG_STYLE_HPP
#define TRAINER_REPORTS_LOG_STYLE_HPP

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/training/training.hpp"

namespace dp::trainer {

enum class LogStyle { plain, pytorch, megatron, samba };

// Whether it has lines of steps; and steps from one to the next where the user has not said it.
bool tells_steps(LogStyle style);
inline constexpr std::int64_t kLogInterval = 100;

// `samples`: of the training set; `batch`: what a rank takes of them in a step.
std::string pytorch_line(const LogReport& report, const Schedule& schedule, std::int64_t samples,
                         std::int64_t batch);
// Data parallelism is all there is.
std::string megatron_world_line(std::int64_t world_size);
std::string megatron_line(const LogReport& report, const Schedule& schedule);

// At the end of a training. Its samples per second are those of all ranks together, whoever prints them.
std::string samba_line(const Outcome& outcome);
std::string samba_summary(const Outcome& outcome);

}  // namespace dp::trainer

#endif
