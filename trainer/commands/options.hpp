// SPDX-License-Identifier: Apache-2.0
//
// The trainer's command line: words in, options out, no other effect. main.cpp calls it;
// tests/unit/trainer/options_test.cpp has the table of what is refused and how.
#ifndef TRAINER_COMMANDS_OPTIONS_HPP
#define TRAINER_COMMANDS_OPTIONS_HPP

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/plan.hpp"
#include "trainer/commands/compile_options.hpp"
#include "trainer/commands/generate.hpp"
#include "trainer/commands/measure.hpp"
#include "trainer/commands/model_options.hpp"
#include "trainer/commands/optimizer_options.hpp"
#include "trainer/commands/prepare_options.hpp"
#include "trainer/commands/report_runs.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/load.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/models/model.hpp"
#include "trainer/parallel/surroundings.hpp"
#include "trainer/reports/log_style.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

enum class Verb { run, compile, info, prepare, measure, report, generate };

// Those that train nothing and give everybody the same: of the processes of a step one does it.
constexpr bool is_for_one(Verb verb) {
    return verb == Verb::info || verb == Verb::report || verb == Verb::generate;
}

// What the user said; what was not said is empty, and the model's defaults hold.
struct Options {
    Verb verb = Verb::run;
    std::optional<std::string> model;
    ModelOptions shape;
    std::optional<std::int64_t> epochs;
    std::optional<std::int64_t> batch;
    std::optional<double> rate;
    std::optional<std::int64_t> steps;
    std::optional<Optimization> optimizer;
    Precision precision = Precision::fp32;
    bool deterministic = false;
    RateShape rate_shape = RateShape::constant;
    double minimum_rate = 0;
    double warmup = 0;
    std::optional<std::int64_t> decay_steps;
    OptimizerOptions optimizing;
    double weight_decay = 0;
    std::int64_t accumulate = 1;
    std::optional<double> clip;
    bool skip_bad_steps = false;
    LogStyle log_style = LogStyle::plain;
    std::optional<std::int64_t> log_every;
    std::optional<double> min_throughput, max_throughput;
    std::uint64_t seed = 1;
    DeviceChoice device = DeviceChoice::automatic;
    DataParallel data_parallel = DataParallel::automatic;
    std::filesystem::path data_directory = kFashionMnistDirectory;
    bool data_directory_given = false;
    CheckpointPlan checkpoints;
    std::optional<std::int64_t> samples;
    std::optional<std::filesystem::path> json;
    std::optional<std::filesystem::path> dump;
    PrepareOptions prepare;
    std::optional<std::filesystem::path> metrics;
    std::optional<std::filesystem::path> tensorboard;
    std::optional<std::int64_t> memory_limit;  // bytes
    MeasureOptions measure;
    std::int64_t info_ranks = 1, info_ranks_per_node = 1;
    ReportOptions report;
    GenerateOptions generate;
    CacheOptions cache;
};

struct Parsed {
    std::optional<Options> options;  // empty: print `text` and exit with `code`
    int code = 0;
    std::string text;
};

// `arguments` without the program's name.
Parsed parse_options(const std::vector<std::string>& arguments);

// Pure: the model, and the sentence that says why if the user did not choose. `data_there`:
// has_fashion_mnist().
struct ModelChoice {
    const ModelInfo* info;
    std::optional<std::string> reason;
};
Result<ModelChoice> choose_model(const Options& options, bool data_there);

// Pure: the model's defaults with what the user said on top.
Settings settings_for(const Options& options, const ModelInfo& info);

// Pure: whether it writes to files what somebody wants who no longer reads its standard output.
bool writes_files(const Options& options);

// Pure: of a measurement, the sentence that says what it does not write although that was asked for.
std::optional<std::string> not_written_by_measuring(const Options& options);

// Pure: the data set that it trains on.
DataRequest data_request(const Options& options, const ModelInfo& info, const ModelShape& shape);

}  // namespace dp::trainer

#endif
