// SPDX-License-Identifier: Apache-2.0
//
// `trainer report`: compares runs by the summaries that they printed, and by what other trainers print (other_logs.hpp). A run is a
// JSON object with the keys of the table; a value is null where its log lacks it. All but report_runs() is pure.
#pragma once

#include <filesystem>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct ReportOptions {
    std::vector<std::filesystem::path> files;
    bool csv = false;
    bool json = false;
};

// Prints the table of the runs in the files.
Result<void> report_runs(const ReportOptions& options);

// All runs in a file of --json, in a log that ends with the summary, or in a job's output with several. If
// there is none, those that the lines of other trainers tell of.
std::vector<nlohmann::ordered_json> find_runs(const std::string& name, std::istream& text);

// Compares each run with the baseline of its model: the run with the fewest ranks among those that trained,
// on accelerators if there are any. The speed-up is in samples/s; the efficiency is the speed-up per rank, on
// the same kind of device. Runs of a model stay together, in input order; a log of another trainer that does not say its model is
// taken to be of ours, if ours are all of one.
std::vector<nlohmann::ordered_json> compare_runs(std::vector<nlohmann::ordered_json> runs);

std::string text_table(const std::vector<nlohmann::ordered_json>& runs);
std::string csv_table(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace dp::trainer
