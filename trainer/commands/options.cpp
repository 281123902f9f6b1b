// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace dp::trainer {
namespace {

constexpr const char* kDescription =
    "Trains a model, data-parallel if it is started as several ranks.\n\n"
    "  trainer                                                here, alone\n"
    "  dpctl launch -n 4 -- trainer                           4 ranks on this machine\n"
    "  srun -N2 --ntasks-per-node=4 --dp-world=auto trainer   8 ranks on 2 nodes of a Slurm cluster";

constexpr const char* kFooter =
    "Nothing is scaled by the number of ranks: with the same global batch (--batch-size x ranks) and seed "
    "any\n"
    "number trains the same. Options may have underscores. The last line of rank 0 is a summary in JSON.\n\n"
    "Exit codes: 0 trained; 1 ranks differ, or the loss is NaN or infinite; 2 wrong options, data or "
    "checkpoint; 3 `prepare` could\n"
    "not download or write; 4 ranks missing or lost; 5 no such device, or out of memory; 6 --min-throughput "
    "or --max-throughput; 7\n"
    "stopped by a signal, and the same command resumes; 8 a checkpoint could not be written. More in "
    "dp-trainer(1).";

// In the order of the enumeration.
constexpr std::array<std::string_view, 11> kCommands{
    "run",    "compile",  "info",    "prepare", "measure-performance", "report", "generate",
    "export", "evaluate", "find-lr", "plan"};

Command command_named(std::string_view name) {
    const auto* found = std::find(kCommands.begin(), kCommands.end(), name);
    return found == kCommands.end() ? Command::run : static_cast<Command>(found - kCommands.begin());
}

CommandLine command_line_for(Options& o) {
    return {
        "trainer " DP_TRAINER_VERSION,
        kDescription,
        kFooter,
        training_options(o),
        {{"run", "train (the default)", true},
         {"compile", "do beforehand what a run does before its first step, and cache it", true,
          compile_options(o.cache)},
         {"info", "show parameters, memory and FLOPs of a model", true, info_options(o.info)},
         {"plan", "show in which ways ranks can divide gpt, and how long a step takes", true,
          plan_options(o.plan)},
         {"measure-performance", "time steps on one batch", true, measure_options(o.measure)},
         {"find-lr", "raise the learning rate step by step, and see where the loss falls", true,
          find_rate_options(o.find_rate)},
         {"prepare", "download or tokenize a data set", false, prepare_options(o.prepare), prepare_footer()},
         {"report", "compare runs by their summaries", false, report_options(o.report)},
         {"generate", "write text with a checkpoint of gpt", false, generate_options(o.generate)},
         {"export", "write a checkpoint of gpt for other programs", false, export_options(o.export_model)},
         {"evaluate", "test a checkpoint's model on any data", false, evaluate_options(o.evaluate)}}};
}

// What is wrong with options that are each right.
std::optional<std::string> contradiction(const Options& o) {
    const auto &least = o.output.min_throughput, &most = o.output.max_throughput;
    if (least && most && *least > *most)
        return fmt::format(
            "--min-throughput: {} is more than --max-throughput, which is {}: no run satisfies both", *least,
            *most);
    if (o.find_rate.lowest >= o.find_rate.highest)
        return fmt::format("--lr-min: {} is not below --lr-max, which is {}", o.find_rate.lowest,
                           o.find_rate.highest);
    return std::nullopt;
}

}  // namespace

std::string_view name_of(Command command) {
    return kCommands[static_cast<std::size_t>(command)];
}

Parsed parse_options(const std::vector<std::string>& arguments) {
    Options options;
    const CommandLine line = command_line_for(options);
    ParsedWords parsed = parse_words(arguments, line);
    if (parsed.help) return {std::nullopt, 0, std::move(*parsed.help)};
    if (!parsed.complaint)
        if (const auto wrong = contradiction(options)) parsed.complaint = refused(*wrong);
    if (parsed.complaint) return {std::nullopt, static_cast<int>(Fault::usage), std::move(*parsed.complaint)};
    options.command = command_named(parsed.subcommand);
    options.given = std::move(parsed.given);
    return {std::move(options), 0, ""};
}

bool writes_files(const Options& o) {
    return o.command == Command::compile || o.command == Command::export_model || o.output.json ||
           o.evaluate.json || o.output.dump || o.output.metrics || o.output.tensorboard || o.output.profile ||
           !o.training.checkpoints.directory.empty();
}

std::vector<std::string> options_without_effect(const Options& o) {
    std::vector<std::string> lines;
    for (const char* name : {"--min-lr", "--lr-decay-iters"}) {
        const bool is_for_warm_up =
            name == std::string_view("--lr-decay-iters") && o.training.rate.warmup > 0;
        if (o.gave(name) && o.training.rate.shape == LrDecay::constant && !is_for_warm_up)
            lines.push_back(fmt::format(
                "{} does nothing: the learning rate is constant; give --lr-schedule, or leave it out", name));
    }
    if (o.gave("--lr-wsd-decay-iters") && o.training.rate.shape != LrDecay::wsd)
        lines.emplace_back(
            "--lr-wsd-decay-iters does nothing without --lr-schedule=wsd; give both, or leave it out");
    if (o.gave("--init-method-std") && o.init_from)
        lines.emplace_back("--init-method-std does nothing: --init-from has the weights");
    if (o.command == Command::find_rate)
        for (const char* name : {"--lr", "--lr-schedule", "--lr-warmup-fraction", "--steps", "--epochs"})
            if (o.gave(name))
                lines.push_back(
                    fmt::format("{} does nothing: find-lr takes --lr-steps steps, with rates from "
                                "--lr-min to --lr-max",
                                name));
    if (o.command != Command::measure && o.command != Command::find_rate) return lines;
    std::vector<std::string_view> unwritten;
    for (const char* name :
         {"--checkpoint-dir", "--metrics", "--tensorboard", "--dump-parameters", "--profile"})
        if (o.gave(name)) unwritten.emplace_back(name);
    if (o.gave("--init-from") && o.command == Command::measure)
        lines.emplace_back("--init-from does nothing: measure-performance keeps no weights");
    if (!unwritten.empty())
        lines.push_back(fmt::format("{}: it writes nothing for {}",
                                    o.command == Command::measure ? "measure-performance repeats one step"
                                                                  : "find-lr keeps nothing of what is learnt",
                                    fmt::join(unwritten, ", ")));
    return lines;
}

}  // namespace dp::trainer
