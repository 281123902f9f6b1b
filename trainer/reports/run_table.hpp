// SPDX-License-Identifier: Apache-2.0
//
// Compares runs by what they printed: `trainer report` (report_runs.cpp) reads the files and prints
// the table. Pure.
#pragma once

#include <cstdint>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dp::trainer {

// A run, from its summary; values that an older summary lacks are empty.
struct RunRecord {
    std::string name;   // for people: the file that it was found in
    std::string model;  // empty where only the lines of SambaNova's programs are known
    std::string device;
    std::optional<std::int64_t> nodes;
    std::int64_t ranks = 1;
    std::optional<std::int64_t> threads;  // of a rank
    std::optional<std::int64_t> global_batch;
    std::int64_t steps = 0;
    double seconds = 0;             // of training
    double samples_per_second = 0;  // 0: nothing was left to train
    std::optional<double> loss;
    std::optional<double> accuracy;
    std::string precision = {};
    std::int64_t resumed = 0;  // of the steps, those that had been made before it went on from a checkpoint
};

// All runs in a file of --json, in a log that ends with the summary, or in a job's output with several.
// Without a summary, the lines that each instance of SambaNova's programs prints at its end
// (--log-style=samba) make one run: each states the rate of all instances together, so the run's rate is
// their mean, never their sum.
std::vector<RunRecord> find_runs(const std::string& name, std::istream& text);

// A run beside the run that it is compared with.
struct RunRow {
    RunRecord run;
    std::string baseline;              // the name of that run; of runs of the same model
    std::optional<double> speed_up;    // in samples/s, so that runs of different lengths can be compared
    std::optional<double> efficiency;  // speed-up a rank; of runs on the same kind of device
};

// The baseline is the run with the fewest ranks among those that trained, on accelerators if there are any.
// Rows of a model stay together, in input order.
std::vector<RunRow> compare_runs(const std::vector<RunRecord>& runs);

std::string text_table(const std::vector<RunRow>& rows);
std::string csv_table(const std::vector<RunRow>& rows);
nlohmann::ordered_json json_table(const std::vector<RunRow>& rows);

}  // namespace dp::trainer
