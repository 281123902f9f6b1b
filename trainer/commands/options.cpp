// SPDX-License-Identifier: Apache-2.0
//
// The command line with CLI11: see options.hpp.
#include "trainer/commands/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "trainer/command_line/checks.hpp"
#include "trainer/command_line/words.hpp"
#include "trainer/commands/verbs.hpp"

namespace dp::trainer {
namespace {

constexpr const char* kDescription =
    "Trains a model, data-parallel where it is started as several ranks.\n\n"
    "  trainer                                                here, alone\n"
    "  dpctl launch -n 4 -- trainer                           4 ranks on this machine\n"
    "  srun -N2 --ntasks-per-node=4 --dp-world=auto trainer   8 ranks on 2 nodes of a Slurm cluster\n\n"
    "Without --model it trains ffn on Fashion-MNIST where that is installed, else linear on generated "
    "points.";

constexpr const char* kFooter =
    "Nothing is scaled by the number of ranks: each takes --batch-size samples a step, and --lr stays as it "
    "is. The same\n"
    "global batch (batch size x ranks) and the same seed give the same training for any number of ranks.\n\n"
    "An option may have underscores for its dashes: --batch_size.\n\n"
    "The last line of rank 0's output is a summary in JSON (srun may put a line of another rank behind it).\n"
    "Exit codes: 0 trained, 1 the ranks' parameters differ or the loss is no number, 2 wrong options, data\n"
    "or checkpoint, 3 `prepare` could not fetch or write, 4 ranks missing or lost, 5 no such device or out "
    "of\n"
    "memory, 6 slower than --min-throughput or faster than --max-throughput, 7 stopped by a signal with a\n"
    "checkpoint from which the same command goes on, 8 a checkpoint could not be written.";

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const auto& info : kModels) names.emplace_back(info.name);
    return names;
}

std::string defaults_of(auto member) {
    std::vector<std::string> parts;
    for (const auto& info : kModels) parts.push_back(fmt::format("{} {}", info.name, member(info.defaults)));
    return fmt::format("(default: {})", fmt::join(parts, ", "));
}

// One line for a person: what was wrong, and what to do. Of several words that nobody knows it is the first.
std::string refusal(const CLI::ParseError& error, const CLI::App& app) {
    std::string what = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {  // "--epochs: 1 required N missing"
        what = what.substr(0, what.find(':')) + " needs a value (a negative one is written --option=-1)";
    } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        const auto unknown = app.remaining(true);
        const bool is_behind_mark = unknown.size() > 1 && unknown.front() == "--";
        what = "no such option or verb: " + unknown[is_behind_mark ? 1 : 0];
    }
    return fmt::format("trainer: {}; `trainer --help` lists the options\n", what.substr(0, what.find('\n')));
}

}  // namespace

Parsed parse_options(const std::vector<std::string>& arguments) {
    const std::vector<std::string> words = without_empty_prompt(arguments);
    if (const auto empty = empty_word(words)) {
        return {std::nullopt, 2,
                fmt::format("trainer: {} is empty; give what is missing, or leave the option out (a script's "
                            "variable that is not set?); `trainer --help` lists the options\n",
                            *empty)};
    }
    CLI::App app(kDescription, "trainer");
    app.footer(kFooter);
    app.get_formatter()->column_width(34);
    // The last of two counts, so that what a job script says can be changed behind it.
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.set_version_flag("--version", "trainer " DP_TRAINER_VERSION);
    Options options;
    app.add_subcommand("run", "train (this is what happens without a verb)")->fallthrough();
    auto* compile =
        app.add_subcommand("compile",
                           "prepare a run with the same options, so that it starts at once: unpack its data, "
                           "try what is fastest, keep both")
            ->fallthrough();
    auto* info =
        app.add_subcommand("info", "show parameters, memory and FLOPs, and train nothing")->fallthrough();
    info->add_option("--ranks", options.info_ranks, "for --shard-optimizer: how many share (default: 1)")
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    info->add_option("--ranks-per-node", options.info_ranks_per_node,
                     "on CPUs: how many have parameters and optimizer once, in memory that they share "
                     "(default: 1)")
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    auto* prepare = app.add_subcommand("prepare", "make a data set ready: text as tokens, MNIST");
    app.require_subcommand(0, 1);
    add_prepare_options(*prepare, options.prepare);
    auto* generate = app.add_subcommand("generate", "text from a checkpoint of gpt");
    add_generate_options(*generate, options.generate);
    auto* measure = app.add_subcommand("measure-performance",
                                       "run the model on one batch again and again, and say how fast it is")
                        ->fallthrough();
    add_measure_options(*measure, options.measure);
    auto* report = app.add_subcommand("report", "compare runs: a table from their summaries");
    add_report_options(*report, options.report);
    add_compile_options(*compile, options.cache);

    using Defaults = ModelInfo::Defaults;
    std::string device = "auto", parallel = "auto", optimizer;
    one_of(app.add_option("--model", options.model, "what to train"), model_names());
    add_model_options(app, options.shape);
    app.add_option("--epochs", options.epochs,
                   "passes over the training set " + defaults_of([](const Defaults& d) { return d.epochs; }))
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    app.add_option("--batch-size", options.batch,
                   "samples a rank takes in a step " + defaults_of([](const Defaults& d) { return d.batch; }))
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    app.add_option("--lr", options.rate,
                   "learning rate " + defaults_of([](const Defaults& d) { return d.rate; }))
        ->check(positive_in_32_bits())
        ->type_name("X");
    one_of(app.add_option("--optimizer", optimizer, "how to update " + defaults_of([](const Defaults& d) {
                                                        return name_of(d.optimizer);
                                                    })),
           {"sgd", "adam"});
    std::string precision = "fp32";
    auto* precision_option =
        one_of(app.add_option("--precision", precision,
                              "of what flows through the model: fp32, or bf16 with parameters and optimizer "
                              "in fp32 (default: fp32)"),
               {"fp32", "bf16"});
    bool bf16 = false;
    app.add_flag("--bf16", bf16, "the same as --precision=bf16")->excludes(precision_option);
    std::string shape = "constant";
    one_of(app.add_option("--lr-schedule,--lr-decay-style", shape,
                          "how the learning rate goes on after the warm-up (default: constant)"),
           {"constant", "linear", "cosine"});
    app.add_option("--min-lr", options.minimum_rate,
                   "learning rate at the end of --lr-decay-iters, where it is not constant (default: 0)")
        ->check(number(0, 1e9, "1e-5"))
        ->type_name("X");
    app.add_option("--lr-decay-iters", options.decay_steps,
                   "steps of the learning rate's warm-up and fall (default: those of the training)")
        ->check(whole(1, 1'000'000'000))
        ->type_name("N");
    app.add_option("--lr-warmup-fraction", options.warmup,
                   "the part of these steps in which the learning rate rises from 0 (default: 0)")
        ->check(number(0, 1, "0.01"))
        ->type_name("X");
    add_optimizer_options(app, options.optimizing);
    app.add_option("--weight-decay", options.weight_decay,
                   "of all parameters but biases; with adam decoupled, as in AdamW (default: 0)")
        ->check(number(0, 1e9, "0.1"))
        ->type_name("X");
    app.add_option("--clip-grad", options.clip,
                   "the largest norm of all gradients together; such that are no numbers are skipped")
        ->check(positive_in_32_bits())
        ->type_name("X");
    app.add_flag("--skip-bad-steps", options.skip_bad_steps,
                 "leave out steps whose gradients are no numbers, on all ranks alike");
    app.add_option("--accumulate", options.accumulate,
                   "batches that a rank adds up before a step; the ranks reduce once (default: 1)")
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    app.add_option(
           "--steps", options.steps,
           "make so many optimizer steps, in as many epochs as that takes; where --epochs is given, too, "
           "what comes first ends the training")
        ->check(whole(1, 1'000'000'000))
        ->type_name("N");
    app.add_option("--seed", options.seed, "of initial values and sampling (default: 1)")
        ->check(whole(0, std::numeric_limits<std::int64_t>::max()))
        ->type_name("N");
    app.add_flag("--deterministic", options.deterministic,
                 "the same bits from the same seed, ranks, threads and kind of device, whatever it costs");
    one_of(
        app.add_option("--device", device, "auto: CUDA where there is a GPU, else the CPU (default: auto)"),
        {"auto", "cpu", "cuda"});
    // expected(0, 1): a bare --data-parallel, as the SN10 tutorial writes it, means on.
    auto* parallel_option =
        one_of(app.add_option("--data-parallel", parallel,
                              "auto: where there are several ranks; on: insist; off: each rank trains alone "
                              "(default: auto)"),
               {"auto", "on", "off"})
            ->expected(0, 1);
    auto* directory = app.add_option("--data-dir", options.data_directory,
                                     fmt::format("where the idx files of Fashion-MNIST are (default: {})",
                                                 kFashionMnistDirectory.string()))
                          ->type_name("DIR");
    app.add_option("--samples", options.samples,
                   "train on no more than so many; of images that are composed: make so many")
        ->check(whole(1, 1'000'000'000))
        ->type_name("N");
    std::string style = "plain";
    one_of(app.add_option("--log-style", style,
                          "print as PyTorch's examples, Megatron-LM or SambaNova's programs do, too "
                          "(default: plain)"),
           {"plain", "pytorch", "megatron", "samba"});
    app.add_option("--log-interval", options.log_every,
                   "steps from one line of pytorch, megatron, --metrics or --tensorboard to the next "
                   "(default: 100)")
        ->check(whole(1, 1'000'000'000))
        ->type_name("N");
    app.add_option("--min-throughput", options.min_throughput,
                   "samples/s of all ranks together (of gpt tokens/s), below which the run fails when it is "
                   "over")
        ->check(positive())
        ->type_name("X");
    app.add_option("--max-throughput", options.max_throughput,
                   "the same, above which it does: something was left out")
        ->check(positive())
        ->type_name("X");
    auto* checkpoints =
        app.add_option(
               "--checkpoint-dir", options.checkpoints.directory,
               "save the training there at its end and on SIGUSR1 or SIGTERM, and go on from what is saved")
            ->type_name("DIR");
    app.add_option("--save-interval", options.checkpoints.every, "also save it after each N optimizer steps")
        ->check(whole(1, 1'000'000'000))
        ->type_name("N")
        ->needs(checkpoints);
    app.add_option("--keep", options.checkpoints.keep, "how many of the newest checkpoints stay (default: 2)")
        ->check(whole(1, 1'000'000))
        ->type_name("N")
        ->needs(checkpoints);
    std::string resume = "auto";
    one_of(app.add_option(
               "--resume", resume,
               "auto: go on from the newest checkpoint where there is one; must: refuse to begin where "
               "there is none; never: where there is one (default: auto)"),
           {"auto", "must", "never"})
        ->needs(checkpoints);
    app.add_option("--json", options.json, "write the summary to this file, too")->type_name("FILE");
    app.add_option("--metrics", options.metrics,
                   "append how the training goes to this file, one JSON object a line")
        ->type_name("FILE");
    app.add_option("--tensorboard,--tensorboard-dir", options.tensorboard,
                   "write the same into this directory for TensorBoard")
        ->type_name("DIR");
    app.add_option("--memory-limit", options.memory_limit,
                   "let the device have no more memory than this, such as 2GiB: what would a smaller one do?")
        ->transform(size_in_bytes())
        ->type_name("SIZE");
    add_cache_options(app, options.cache);
    app.add_option("--dump-parameters", options.dump,
                   "write rank 0's final parameters to this file: 32-bit floats, one after another")
        ->type_name("FILE");

    Parsed parsed;
    try {
        // CLI11 takes the words from the back of the vector.
        auto known = with_dashes(words, app);
        std::reverse(known.begin(), known.end());
        app.parse(std::move(known));
        if (!optimizer.empty())
            options.optimizer = optimizer == "adam" ? Optimization::adam : Optimization::sgd;
        const ModelInfo* model = find_model(options.model.value_or("ffn"));
        refuse_foreign_constants(options.optimizing, options.optimizer.value_or(model->defaults.optimizer));
        if (options.min_throughput && options.max_throughput &&
            *options.min_throughput > *options.max_throughput)
            throw CLI::ValidationError(
                "--min-throughput",
                fmt::format("{} is more than --max-throughput, which is {}: no run keeps both",
                            *options.min_throughput, *options.max_throughput));
        // These verbs train nothing: in front of them stands nothing either.
        for (const CLI::App* verb : {prepare, generate, report}) {
            if (!verb->parsed()) continue;
            for (const CLI::Option* option : app.get_options())
                if (option->count() > 0)
                    throw CLI::ValidationError(
                        option->get_name(),
                        fmt::format("is an option of trainings; those of `trainer {0}` stand behind {0}",
                                    verb->get_name()));
        }
    } catch (const CLI::CallForVersion& call) {
        parsed.text = std::string(call.what()) + "\n";
        return parsed;
    } catch (const CLI::Success&) {  // --help
        parsed.text = app.help();
        return parsed;
    } catch (const CLI::ParseError& error) {
        parsed.code = static_cast<int>(Fault::usage);
        parsed.text = refusal(error, app);
        return parsed;
    }
    options.verb = compile->parsed()    ? Verb::compile
                   : info->parsed()     ? Verb::info
                   : prepare->parsed()  ? Verb::prepare
                   : measure->parsed()  ? Verb::measure
                   : report->parsed()   ? Verb::report
                   : generate->parsed() ? Verb::generate
                                        : Verb::run;
    options.device = device == "cpu" ? DeviceChoice::cpu
                                     : (device == "cuda" ? DeviceChoice::cuda : DeviceChoice::automatic);
    if (parallel_option->count() > 0 && parallel.empty()) parallel = "on";
    options.data_parallel = parallel == "on"
                                ? DataParallel::on
                                : (parallel == "off" ? DataParallel::off : DataParallel::automatic);
    options.rate_shape = shape == "cosine"   ? RateShape::cosine
                         : shape == "linear" ? RateShape::linear
                                             : RateShape::constant;
    options.log_style = style == "pytorch"    ? LogStyle::pytorch
                        : style == "megatron" ? LogStyle::megatron
                        : style == "samba"    ? LogStyle::samba
                                              : LogStyle::plain;
    options.checkpoints.resume = resume == "must"    ? Resume::must
                                 : resume == "never" ? Resume::never
                                                     : Resume::automatic;
    options.precision = bf16 || precision == "bf16" ? Precision::bf16 : Precision::fp32;
    options.data_directory_given = directory->count() > 0;
    parsed.options = std::move(options);
    return parsed;
}

Result<ModelChoice> choose_model(const Options& options, bool data_there) {
    const std::string directory = options.data_directory.string();
    const std::string advice = options.data_directory_given
                                   ? "give the directory of its idx files as --data-dir"
                                   : "install Debian's package dataset-fashion-mnist, or give --data-dir";
    if (options.model) {
        const ModelInfo* info = find_model(*options.model);
        if (info->data == DataSet::fashion_mnist && !data_there && options.verb != Verb::info) {
            return fail(Fault::usage, fmt::format("{}: no Fashion-MNIST there, which {} trains on; {}",
                                                  directory, info->name, advice));
        }
        return ModelChoice{info, std::nullopt};
    }
    if (data_there) {
        return ModelChoice{find_model("ffn"), fmt::format("no --model given: ffn, because {} in {}",
                                                          options.data_directory_given ? "images of 28x28 are"
                                                                                       : "Fashion-MNIST is",
                                                          directory)};
    }
    if (options.data_directory_given) {
        return fail(Fault::usage, fmt::format("{}: no Fashion-MNIST there; {}", directory, advice));
    }
    return ModelChoice{
        find_model("linear"),
        fmt::format("no --model given: linear on generated points, because there is no Fashion-MNIST in "
                    "{} ({})",
                    directory, advice)};
}

bool writes_files(const Options& options) {
    return options.verb == Verb::compile || options.json || options.dump || options.metrics ||
           options.tensorboard || !options.checkpoints.directory.empty();
}

std::optional<std::string> not_written_by_measuring(const Options& options) {
    std::vector<std::string_view> asked;
    if (!options.checkpoints.directory.empty()) asked.emplace_back("--checkpoint-dir");
    if (options.metrics) asked.emplace_back("--metrics");
    if (options.tensorboard) asked.emplace_back("--tensorboard");
    if (options.dump) asked.emplace_back("--dump-parameters");
    if (asked.empty()) return std::nullopt;
    return fmt::format("measure-performance makes one step again and again: it saves nothing for {}",
                       fmt::join(asked, ", "));
}

DataRequest data_request(const Options& options, const ModelInfo& info, const ModelShape& shape) {
    return {.set = info.data,
            .directory = options.data_directory,
            .samples = options.samples,
            .seed = options.seed,
            .image_size = shape.image_size,
            .sequence = shape.gpt.sequence,
            .vocabulary = shape.gpt.vocabulary};
}

Settings settings_for(const Options& options, const ModelInfo& info) {
    Settings settings;
    // Who gives --steps alone means just these.
    settings.epochs = options.epochs;
    if (!options.epochs && !options.steps) settings.epochs = info.defaults.epochs;
    settings.batch = options.batch.value_or(info.defaults.batch);
    settings.rate = {options.rate_shape, options.rate.value_or(info.defaults.rate), options.minimum_rate,
                     options.warmup, options.decay_steps};
    settings.weight_decay = options.weight_decay;
    settings.constants = constants_of(options.optimizing);
    settings.shard_optimizer = options.optimizing.shard;
    settings.accumulate = options.accumulate;
    settings.clip = options.clip;
    // Megatron's line has the norm of the gradients.
    settings.skip_bad_steps = options.skip_bad_steps || options.log_style == LogStyle::megatron;
    const bool writes_metrics = options.metrics || options.tensorboard;
    if (tells_steps(options.log_style) || writes_metrics)
        settings.log_every = options.log_every.value_or(kLogInterval);
    settings.log_single = options.log_style == LogStyle::pytorch;
    settings.optimizer = options.optimizer.value_or(info.defaults.optimizer);
    settings.precision = options.precision;
    settings.seed = options.seed;
    settings.max_steps = options.steps;
    settings.checkpoints = options.checkpoints;
    return settings;
}

}  // namespace dp::trainer
