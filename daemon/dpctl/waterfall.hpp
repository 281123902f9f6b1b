// SPDX-License-Identifier: Apache-2.0
//
// `dpctl waterfall`: its text.
#pragma once

#include <string>

#include "dp.pb.h"

namespace dp {

// One line per rank (in a large world: the slowest), with times in ms since the first task's start and a bar;
// then the medians, the slowest rank of each phase, and who stands out.
std::string waterfall_text(const std::string& step, const wire::StepStatus& status);

}  // namespace dp
