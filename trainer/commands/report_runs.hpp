// SPDX-License-Identifier: Apache-2.0
//
// `trainer report`: a table of runs from the files that they left. Called by main.cpp;
// run_table.cpp calculates.
#ifndef TRAINER_COMMANDS_REPORT_RUNS_HPP
#define TRAINER_COMMANDS_REPORT_RUNS_HPP

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

#endif
