// SPDX-License-Identifier: Apache-2.0
//
// What a step's broker knows, as Prometheus reads it (text exposition format, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/). Pure.
#pragma once

#include <string>

#include "dp.pb.h"

namespace dp {

std::string metrics_text(const std::string& step, const wire::StepStatus& status);

}  // namespace dp
