// SPDX-License-Identifier: Apache-2.0
//
// `trainer find-lr`: what it prints of a learning-rate range test. run.cpp prepares everything as for a training.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/reports/report.hpp"
#include "trainer/training/range_test.hpp"

namespace dp::trainer {

// Pure: a table with the curve beside it, and what follows from it; the line for programs.
std::string range_text(const RangeTest& test);
nlohmann::ordered_json range_json(const RunFacts& facts, const RangeOptions& options, const RangeTest& test);

}  // namespace dp::trainer
