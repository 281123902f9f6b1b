// SPDX-License-Identifier: Apache-2.0
//
// The parts of `dpctl report --text` that are about the nodes, and what parts of it share. Each is "" where nothing is known. Pure.
#pragma once

#include <fmt/format.h>

#include <string>

#include "dpctl/report.hpp"

namespace dp {

// Of a terminal's height: rows of a table.
inline constexpr size_t kMostRows = 40;

inline std::string percent(double part, double all) {
    return all > 0 ? fmt::format("{:.1f} %", 100 * part / all) : "-";
}

std::string preflight_text(const RecordedRun& run);
std::string gpus_text(const ReportedRun& one);
std::string transports_text(const RecordedRun& run);
std::string environment_text(const RecordedRun& run);

}  // namespace dp
