// SPDX-License-Identifier: Apache-2.0
//
// `dpctl status`: its texts.
#pragma once

#include <string>

#include "dp.pb.h"

namespace dp {

// "hello", "exited".
const char* name_of(wire::StepStatus::State state);

// As text: one line per node, ranks of one state together, and who waits for whom.
std::string status_text(const std::string& step, const wire::StepStatus& status);
// As JSON: dpctl(1) documents the keys.
std::string status_json(const std::string& step, const wire::StepStatus& status);

}  // namespace dp
