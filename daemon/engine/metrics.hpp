// SPDX-License-Identifier: Apache-2.0
//
// A step's status in Prometheus' text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Pure.
#pragma once

#include <string>

#include "dp.pb.h"

namespace dp {

std::string metrics_text(const std::string& step, const wire::StepStatus& status);

}  // namespace dp
