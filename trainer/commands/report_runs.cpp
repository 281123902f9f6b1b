// SPDX-License-Identifier: Apache-2.0
//
// Reads the files and prints the table: see report_runs.hpp.
#include "trainer/commands/report_runs.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trainer/reports/run_table.hpp"

namespace dp::trainer {

Result<void> report_runs(const ReportOptions& options) {
    std::vector<RunRecord> runs;
    for (const auto& file : options.files) {
        std::error_code ignored;
        std::ifstream text(file);
        if (!text)
            return fail(Fault::usage,
                        fmt::format("{}: cannot read: {}", file.string(), std::strerror(errno)));
        const auto found = std::filesystem::is_directory(file, ignored) ? std::vector<RunRecord>{}
                                                                        : find_runs(file.string(), text);
        if (found.empty())
            return fail(Fault::usage,
                        fmt::format("{}: no summary of a run in it; give files of --json, or outputs of runs "
                                    "that came to their end",
                                    file.string()));
        runs.insert(runs.end(), found.begin(), found.end());
    }
    const auto rows = compare_runs(runs);
    if (options.json)
        fmt::print("{}\n", json_table(rows).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
        fmt::print("{}", options.csv ? csv_table(rows) : text_table(rows));
    return {};
}

}  // namespace dp::trainer
