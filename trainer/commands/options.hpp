// SPDX-License-Identifier: Apache-2.0
//
// The trainer's options: words in, groups of options out, no other effect. Each group is one struct that the
// command line fills (option_rows.cpp) and that is passed on as it is. options_test.cpp has what is refused.
#pragma once

#include "trainer/command_line/parse.hpp"
#include "trainer/commands/evaluate.hpp"
#include "trainer/commands/export.hpp"
#include "trainer/commands/find_rate.hpp"
#include "trainer/commands/generate.hpp"
#include "trainer/commands/measure.hpp"
#include "trainer/data/load.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/parallel/launch_context.hpp"
#include "trainer/prepare/prepare.hpp"
#include "trainer/profile/recorder.hpp"
#include "trainer/reports/run_table.hpp"

namespace dp::trainer {

enum class Command {
    run,
    compile,
    info,
    prepare,
    measure,
    report,
    generate,
    export_model,
    evaluate,
    find_rate,
    plan
};

std::string_view name_of(Command command);

// Those that train nothing and give everybody the same: of the processes of a step one does it.
constexpr bool is_for_one(Command command) {
    return command == Command::info || command == Command::report || command == Command::generate ||
           command == Command::export_model || command == Command::plan;
}

struct DeviceOptions {
    DeviceChoice choice = DeviceChoice::automatic;
    DataParallel data_parallel = DataParallel::automatic;
    std::optional<std::int64_t> memory_limit;  // bytes
    bool deterministic = false;
    bool cuda_graphs = false;
};

struct OutputOptions {
    LogStyle style = LogStyle::plain;
    std::int64_t log_interval = kLogInterval;
    std::optional<double> min_throughput, max_throughput;
    std::optional<std::filesystem::path> json, dump, metrics, tensorboard, profile;
    StepRange profile_steps;
};

struct CacheOptions {
    std::optional<std::filesystem::path> directory;  // "none": there is no cache
    bool off = false;
    bool force = false;                           // compile: what is there is made again, too
    std::int64_t limit = std::int64_t{10} << 30;  // compile: bytes of all entries together
};

struct InfoOptions {
    std::int64_t ranks = 1, ranks_per_node = 1;
    bool roofline = false;
    std::string device_model = "h100";  // of kDeviceModels
};

inline constexpr const char* kHere = "here";  // the hardware of this machine

struct PlanOptions {
    std::int64_t ranks = 1, ranks_per_node = 1;
    std::string hardware = kHere;
    double network_bandwidth = 10;  // Gbit/s of a rank
};

// What the user said on top of the defaults; completed() adds those that depend on the model.
struct Options {
    Command command = Command::run;
    Given given;
    std::string model;     // "": none was given
    std::string gpt_size;  // for what `shape` was not given
    ModelShape shape;
    bool resets_attention = false;                   // where a document begins
    std::optional<std::filesystem::path> init_from;  // where the first weights are
    // Ranks that divide each layer, and stages of the pipeline; else as the step says.
    std::optional<std::int64_t> tensor_parallel, pipeline_parallel;
    Settings training;
    DataRequest data = {.set = {}, .directory = kFashionMnistDirectory};
    DeviceOptions device;
    OutputOptions output;
    CacheOptions cache;
    InfoOptions info;
    PlanOptions plan;
    MeasureOptions measure;
    PrepareOptions prepare;
    ReportOptions report;
    GenerateOptions generate;
    ExportOptions export_model;
    EvaluateOptions evaluate;
    RangeOptions find_rate;

    bool gave(std::string_view name) const { return given.contains(name); }
};

// The rows of all options (option_rows.cpp). Each fills a field of what it is given, which outlives the list.
OptionList training_options(Options& options);
OptionList compile_options(CacheOptions& options);
OptionList info_options(InfoOptions& options);
OptionList plan_options(PlanOptions& options);
OptionList measure_options(MeasureOptions& options);
OptionList prepare_options(PrepareOptions& options);
OptionList report_options(ReportOptions& options);
OptionList generate_options(GenerateOptions& options);
OptionList export_options(ExportOptions& options);
OptionList evaluate_options(EvaluateOptions& options);
OptionList find_rate_options(RangeOptions& options);
std::string prepare_footer();  // what stands below the options in its help

struct Parsed {
    std::optional<Options> options;  // empty: print `text` and exit with `code`
    int code = 0;
    std::string text;  // the help, or the one line of what is wrong
};

// `arguments` without the program's name.
Parsed parse_options(const std::vector<std::string>& arguments);

// Pure: whether it writes files, which somebody wants who no longer reads its standard output.
bool writes_files(const Options& options);

// Pure: the sentences about options that were given and do nothing in this run.
std::vector<std::string> options_without_effect(const Options& options);

}  // namespace dp::trainer
