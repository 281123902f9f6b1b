// SPDX-License-Identifier: Apache-2.0
//
// `trainer report`: a table of runs from the files that they left. Called by main.cpp;
// run_table.cpp calculates.
#pragma once

#include <filesystem>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct ReportOptions {
    std::vector<std::filesystem::path> files;
    bool csv = false;
    bool json = false;
};

Result<void> report_runs(const ReportOptions& options);

}  // namespace dp::trainer
