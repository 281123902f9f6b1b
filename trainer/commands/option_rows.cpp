// SPDX-License-Identifier: Apache-2.0
//
// Each option in one row. To add one, add its field and its row; option_uses_test.cpp and
// test_trainer_ranks.py then ask for a value to try it with.
#include "trainer/commands/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/text.hpp"
#include "trainer/commands/data_formats.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/prepare/sources.hpp"
#include "trainer/profile/roofline.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kMostProfiled = 100;  // steps: their operations are kept in memory
constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kMillion = 1'000'000, kBillion = 1'000'000'000;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

constexpr Uses kWrittenByRank0 = own_of_a_rank("rank 0 alone writes it");
constexpr Uses kCacheOfNode = own_of_a_rank("each node may have a cache of its own");
constexpr Uses kPlaceOfNode =
    own_of_a_rank("nodes may keep the data in different places; the contents are compared");
constexpr Uses kAlone = own_of_a_rank("it trains nothing");

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

std::vector<std::string> names_of(const auto& list) {
    std::vector<std::string> names;
    for (const auto& one : list) names.emplace_back(one.name);
    return names;
}

Format<DeviceChoice> device_choice() {
    return one_of<DeviceChoice>(
        {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}});
}

Format<Precision> precision_name() {
    return one_of<Precision>({{"fp32", Precision::fp32}, {"bf16", Precision::bf16}});
}

Format<BadSamples> bad_samples() {
    return one_of<BadSamples>({{"refuse", BadSamples::refuse}, {"skip", BadSamples::skip}});
}

constexpr const char* kWhichWeights = "ema: the average that --ema-decay kept (default: last)";
Format<bool> which_weights() {
    return one_of<bool>({{"last", false}, {"ema", true}});
}

// "9,3", or a word.
constexpr const char *kBalanced = "balanced", *kEven = "even";
Format<PipelineSplit> pipeline_split() {
    const auto parse = [](const std::string& given) -> Try<PipelineSplit> {
        if (given == kBalanced) return PipelineSplit{};
        if (given == kEven) return PipelineSplit{true, {}};
        PipelineSplit exactly;
        for (const std::string_view part :
             given.empty() ? std::vector<std::string_view>{""} : split(given, ',')) {
            const auto layers = parse_number<std::int64_t>(part);
            if (!layers || *layers < 1 || *layers > kMostLayers)
                return dp::fail(
                    fmt::format("'{}' is not {}, {} or the layers of each stage, at least one, such as 9,3",
                                given, kBalanced, kEven));
            exactly.layers.push_back(*layers);
        }
        return exactly;
    };
    const auto text = [](const PipelineSplit& one) -> std::string {
        if (!one.layers.empty()) return fmt::format("{}", fmt::join(one.layers, ","));
        return one.is_even ? kEven : kBalanced;
    };
    return {"even|N,...", parse, text};
}

void add_model(OptionList& list, Options& o) {
    list.heading("Model");
    list.add("--model", o.model, one_of(names_of(kModels)),
             "what to train (default: ffn if its data is installed, else linear)", kIdentity);
    const auto of = [&list](const char* model) {
        return
            [&list, model](const char* names, auto& field, auto format, std::string help, const Uses& uses) {
                list.add(names, field, format, std::move(help), uses).only_of = model;
            };
    };
    const auto unet = of("unet2d"), gpt = of("gpt");
    GptShape& shape = o.shape.gpt;
    unet("--image-size", o.shape.image_size, one_of(std::vector<std::int64_t>{256, 512, 1024}),
         "unet2d: width and height in pixels (default: 256)", kIdentity);
    unet("--init-features", o.shape.features, whole(1, 1024),
         "unet2d: channels of the first level (default: 32)", kIdentity);
    gpt("--gpt-size", o.gpt_size, one_of(gpt_size_names()), "gpt: sets the next four (default: 10M)",
        kIdentity);
    gpt("--num-layers", shape.layers, whole(1, kMostLayers), "gpt: layers", kIdentity);
    gpt("--hidden-size", shape.hidden, whole(1, 65536), "gpt: size of a token's vector", kIdentity);
    gpt("--num-attention-heads", shape.heads, whole(1, 1024), "gpt: attention heads", kIdentity);
    gpt("--seq-length", shape.sequence, whole(1, 65536), "gpt: tokens per sequence", kIdentity);
    gpt("--vocab-size", shape.vocabulary, whole(1, 65536), "gpt: tokens (default: the data's, else 50257)",
        kIdentity);
    list.flag("--reset-attention-mask", o.resets_attention,
              "gpt: restrict attention to tokens of the same document", kIdentity)
        .only_of = "gpt";
    list.flag("--recompute", shape.recompute,
              "gpt: recompute activations in the backward pass to save memory", kCost)
        .only_of = "gpt";
    gpt("--tensor-parallel,--tensor-model-parallel-size", o.tensor_parallel, whole(1, 1024),
        "gpt: ranks that divide each layer (default: --dp-tensor)", kCourse);
    list.flag("--sequence-parallel", o.training.sequence_parallel,
              "gpt: ranks of --tensor-parallel also divide the tokens of norms and residuals, to save memory",
              kCourse)
        .only_of = "gpt";
    gpt("--pipeline-parallel,--pipeline-model-parallel-size", o.pipeline_parallel, whole(1, 1024),
        "gpt: stages of layers (default: --dp-pipeline)", kCourse);
    gpt("--pipeline-split", o.training.pipeline_split, pipeline_split(),
        "gpt: layers of each stage (default: balanced, so that the slowest is as fast as it can be)",
        kCourse);
    auto schedule = one_of<PipelineSchedule>({{"1f1b", PipelineSchedule::one_forward_one_backward},
                                              {"gpipe", PipelineSchedule::gpipe},
                                              {"interleaved", PipelineSchedule::interleaved}});
    schedule.type = "ORDER";
    gpt("--pipeline-schedule", o.training.pipeline_schedule, schedule,
        "gpt: order of the micro-batches: 1f1b, gpipe or interleaved (default: 1f1b)", kCourse);
    gpt("--virtual-stages", o.training.virtual_stages, whole(2, 1024),
        "gpt: model chunks of each stage, if interleaved (default: 2)", kCourse);
    gpt("--init-from", o.init_from, path("DIR|FILE"),
        "gpt: GPT-2's weights to begin with, in the safetensors format; a checkpoint comes first", kCourse);
    gpt("--lora-rank", shape.lora_rank, whole(1, 32768),
        "gpt: learn only LoRA adapters of c_attn, of this rank", kIdentity);
    gpt("--lora-alpha", shape.lora_alpha, whole(1, 65536),
        "gpt: scales what they add by this / rank (default: 2 x rank)", kIdentity);
    gpt("--init-method-std", shape.initial_deviation, positive("0.02", Bits::fp32),
        "gpt: standard deviation of the initial weights (default: 0.02)", kCourse);
    gpt("--hidden-dropout", shape.hidden_dropout, number(0, 1, "0.1"),
        "gpt: dropout of embedding and residual branches (default: 0)", kCostIfGiven);
    gpt("--attention-dropout", shape.attention_dropout, number(0, 1, "0.1"),
        "gpt: dropout of attention weights (default: 0)", kCostIfGiven);
}

void add_course(OptionList& list, Options& o) {
    using Defaults = ModelInfo::Defaults;
    Settings& training = o.training;
    list.heading("Training");
    list.add("--epochs", training.epochs, whole(1, kMillion),
             "passes over the data " + defaults_of([](const Defaults& d) { return d.epochs; }), kCourse);
    list.add("--steps", training.max_steps, whole(1, kBillion),
             "optimizer steps, in as many epochs as needed; with --epochs: at most", kCourse);
    list.add("--batch-size,--micro-batch-size", training.batch, whole(1, kMillion),
             "samples a rank " + defaults_of([](const Defaults& d) { return d.batch; }), kIdentity);
    list.add("--accumulate,--gradient-accumulation-steps", training.accumulate, whole(1, kMillion),
             "batches per rank and step (default: 1)", kIdentity);
    list.add("--seed", training.seed, whole(0, kLargest), "seed of initial values and sampling (default: 1)",
             {nullptr, PlanUse::none, false});
    list.add("--precision", training.precision, precision_name(),
             "of activations; master weights stay fp32 (default: fp32)", kCost);
    list.flag("--bf16", training.precision, Precision::bf16, "the same as --precision=bf16", kCost).excludes =
        "--precision";
    list.flag("--deterministic", o.device.deterministic, "the same bits each time, at any cost", kCost);
    list.add("--eval-interval", training.test_every, whole(1, kBillion),
             "test every N steps, too, not only after each epoch", kCourse);
    list.add("--eval-iters", training.test_batches, whole(1, kMillion),
             "then on N batches of each rank (default: all test data)", kCourse)
        .needs = "--eval-interval";
    list.add("--early-stopping", training.early_stopping, whole(1, kMillion),
             "end after N tests in a row without a smaller test loss", kCourse);
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
    list.add("--lr", rate.rate, positive("0.001", Bits::fp32),
             "learning rate " + defaults_of([](const Defaults& d) { return d.rate; }), kCourse);
    list.add("--lr-schedule,--lr-decay-style", rate.shape,
             one_of<LrDecay>({{"constant", LrDecay::constant},
                              {"linear", LrDecay::linear},
                              {"cosine", LrDecay::cosine},
                              {"wsd", LrDecay::wsd}}),
             "after the warm-up (default: constant)", kCourse);
    list.add("--min-lr", rate.minimum, number(0, 1e9, "1e-5"),
             "learning rate at the end of a decay (default: 0)", kCourse);
    list.add("--lr-decay-iters", rate.steps, whole(1, kBillion),
             "steps of warm-up and decay (default: those of the training)", kCourse);
    list.add("--lr-wsd-decay-iters", rate.wsd_steps, whole(1, kBillion),
             "wsd: the last of these, in which the rate falls (default: a tenth)", kCourse);
    list.add("--lr-warmup-fraction", rate.warmup, number(0, 1, "0.01"),
             "the part of these steps in which the rate rises from 0 (default: 0)", kCourse);
    list.add("--ema-decay", training.ema_decay, number(0, 1, "0.999"),
             "also keep a moving average of the weights (evaluate --weights=ema)", kCostIfGiven);
    list.add("--freeze", o.shape.freeze, words("NAME,..."),
             "parameters that keep their values, such as wte,h.*.attn (trainer info)", kCost);
    list.add("--weight-decay", training.weight_decay, number(0, 1e9, "0.1"),
             "of all parameters but biases and norm gains (default: 0)", kCourse);
    list.add("--adam-beta1", constants.beta1, number(0, 1, "0.9"),
             with_default("adam: decay of the mean gradient", constants.beta1), kCourse)
        .only_of = "adam";
    list.add("--adam-beta2", constants.beta2, number(0, 1, "0.95"),
             with_default("adam: decay of the mean square", constants.beta2), kCourse)
        .only_of = "adam";
    // Less would be 0 in 32 bits, and a gradient of 0 divided by it NaN.
    list.add("--adam-eps", constants.epsilon, number(1e-30, 1e9, "1e-8"),
             with_default("adam: added to the root of the mean square", constants.epsilon), kCourse)
        .only_of = "adam";
    list.add("--sgd-momentum", constants.momentum, number(0, 1, "0.9"),
             with_default("sgd: the part of the last update that is kept", constants.momentum), kCourse)
        .only_of = "sgd";
    list.add("--clip-grad", training.clip, positive("1.0", Bits::fp32),
             "clip the global gradient norm; skip NaN and infinite gradients", kCostIfGiven);
    list.flag("--skip-bad-steps", training.skip_bad_steps, "skip steps with NaN or infinite gradients",
              kCost);
    list.flag("--shard-optimizer,--use-distributed-optimizer", training.shard_optimizer,
              "shard the optimizer's state over the ranks (ZeRO stage 1)", kCourse);
    list.add("--peer-copy", training.peer_copy, whole(0, kBillion),
             "with restarts: a second rank copies each shard; 0: none does (default: 1)", kCourse)
        .needs = "--shard-optimizer";
}

void add_data_and_device(OptionList& list, Options& o) {
    constexpr Uses kPlaceOfData =
        own_of_a_rank("nodes may keep the data in different places; the contents are compared");
    list.heading("Data, device and cache");
    list.add("--data-dir", o.data.directory, path("DIR"),
             fmt::format("the data set (default: {})", kFashionMnistDirectory.string()), kPlaceOfData);
    auto& mix =
        list.add("--data", o.data.mix, data_mix(), "gpt: several sets, mixed by weight", kPlaceOfData);
    mix.only_of = "gpt";
    mix.excludes = "--data-dir";
    list.add("--data-split,--split", o.data.split, train_test_rest(),
             "of a set without test files, as 969,30,1 (default: the last 1/20 to test)", kCourse);
    list.add("--bad-samples", o.data.bad_samples, bad_samples(),
             "texts, lines of JSON and images that cannot be read (default: refuse)", kCourse);
    list.add("--tokenizer", o.data.tokenizer, path("FILE"),
             "gpt: tokenizer.json, *.tiktoken or vocab.bpe (default: beside the texts, else bytes)",
             kPlaceOfData)
        .only_of = "gpt";
    list.add("--samples", o.data.samples, whole(1, kBillion), "train on the first N; composed images: make N",
             kIdentity);
    list.add("--device", o.device.choice, device_choice(), "auto: a GPU if there is one (default: auto)",
             own_of_a_rank("the devices that are opened are compared"));
    list.add("--cuda-graphs", o.device.cuda_graphs, one_of<bool>({{"on", true}, {"off", false}}),
             "on a GPU, launch what each step repeats as CUDA graphs (default: off)",
             own_of_a_rank("the results are the same"));
    // A bare --data-parallel, as the SN10 tutorial writes it, means on.
    list.add("--data-parallel", o.device.data_parallel,
             one_of<DataParallel>(
                 {{"auto", DataParallel::automatic}, {"on", DataParallel::on}, {"off", DataParallel::off}}),
             "auto: if there are several ranks; on: insist (default: auto)",
             own_of_a_rank("auto and on mean the same for several ranks"))
        .bare = "on";
    list.add("--memory-limit", o.device.memory_limit, size_in_bytes(),
             "use no more of the device's memory, such as 2GiB",
             own_of_a_rank("all ranks use the smallest limit"));
    list.add("--cache-dir", o.cache.directory, path("DIR"),
             "of `trainer compile`, or none (default: $XDG_CACHE_HOME/slurm-dp, else ~/.cache/slurm-dp)",
             kCacheOfNode);
    list.flag("--no-cache", o.cache.off, "do not use it", kCacheOfNode);
}

void add_checkpoints(OptionList& list, Options& o) {
    CheckpointPlan& checkpoints = o.training.checkpoints;
    list.heading("Checkpoints");
    list.add("--checkpoint-dir", checkpoints.directory, path("DIR"),
             "save there at the end, on SIGUSR1 and on SIGTERM; resume from there", kCourse);
    list.add("--save-interval", checkpoints.every, whole(1, kBillion), "also save every N steps", kCourse)
        .needs = "--checkpoint-dir";
    list.flag("--async-save", checkpoints.is_async, "write those of --save-interval in the background",
              kCourse)
        .needs = "--save-interval";
    list.add("--keep", checkpoints.keep, whole(1, kMillion), "keep the newest N (default: 2)", kCourse)
        .needs = "--checkpoint-dir";
    list.add("--resume", checkpoints.resume,
             one_of<Resume>({{"auto", Resume::automatic}, {"must", Resume::must}, {"never", Resume::never}}),
             "must: fail without a checkpoint; never: fail with one (default: auto)", kCourse)
        .needs = "--checkpoint-dir";
}

// "10:15", or "12" for one.
Format<StepRange> step_range() {
    const auto parse = [](const std::string& given) -> Try<StepRange> {
        const auto colon = given.find(':');
        const auto first = parse_number<std::int64_t>(given.substr(0, colon));
        const auto last =
            colon == std::string::npos ? first : parse_number<std::int64_t>(given.substr(colon + 1));
        if (first && last && 1 <= *first && *first <= *last && *last - *first < kMostProfiled)
            return StepRange{*first, *last};
        return dp::fail(fmt::format("'{}' is not a step or a range of at most {} steps, such as 10:15", given,
                                    kMostProfiled));
    };
    const auto text = [](const StepRange& range) { return fmt::format("{}:{}", range.first, range.last); };
    return {"FIRST:LAST", parse, text};
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
             fmt::format("steps between these lines, and those of --metrics (default: {})", kLogInterval),
             kCourse);
    list.add("--json", output.json, path("FILE"), "also write the summary to this file", kWrittenByRank0);
    list.add("--metrics", output.metrics, path("FILE"), "append the progress as lines of JSON",
             kWrittenByRank0);
    list.add("--tensorboard,--tensorboard-dir", output.tensorboard, path("DIR"), "the same for TensorBoard",
             kWrittenByRank0);
    list.add("--profile", output.profile, path("DIR|FILE"),
             "where a step's time and memory go, and what is faster", kCourse);
    list.add("--profile-steps", output.profile_steps, step_range(),
             "of those that the process takes (default: 10:15)", kCourse)
        .needs = "--profile";
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
    list.add("--ranks", options.ranks, whole(1, kMillion),
             "ranks that share the optimizer's state (default: 1)", kAlone);
    list.add("--ranks-per-node", options.ranks_per_node, whole(1, kMillion),
             "on CPUs: ranks that share parameters and optimizer (default: 1)", kAlone);
    list.flag("--roofline", options.roofline,
              "show instead the least and the predicted time of each operation of a step on one GPU", kAlone);
    list.add("--device-model", options.device_model, one_of(names_of(kDeviceModels)),
             "which GPU (default: h100)", kAlone)
        .needs = "--roofline";
    return list;
}

OptionList plan_options(PlanOptions& options) {
    OptionList list;
    list.add("--ranks", options.ranks, whole(1, kMillion), "ranks that train together (default: 1)", kAlone);
    list.add("--ranks-per-node", options.ranks_per_node, whole(1, kMillion),
             "of them on a node, here (default: 1)", kAlone);
    list.add("--hardware", options.hardware, one_of(std::vector<std::string>{kHere, "h100"}),
             "this machine, measured, or what is written of a GPU (default: here)", kAlone);
    list.add("--network-bandwidth", options.network_bandwidth, positive("100"),
             "Gbit/s of a rank between nodes, here (default: 10)", kAlone);
    return list;
}

OptionList compile_options(CacheOptions& options) {
    OptionList list;
    list.flag("--force", options.force, "make existing entries again", kAlone);
    list.add("--cache-limit", options.limit, size_in_bytes(),
             "then remove the least recently used entries beyond this (default: 10GiB)", kAlone);
    return list;
}

OptionList measure_options(MeasureOptions& options) {
    OptionList list;
    list.add("--iterations", options.iterations, whole(1, kMillion), "steps to measure (default: 50)",
             kCourse);
    list.add("--warmup", options.warmup, whole(1, kMillion), "steps before them (default: 10)", kCourse);
    list.flag("--per-operation", options.per_operation,
              "also show the time of each operation, beside the least that it could take", kCourse);
    return list;
}

OptionList prepare_options(PrepareOptions& options) {
    OptionList list;
    list.add("--data", options.data, one_of(names_of(kSources)), "which data set (default: sotu)", kAlone);
    list.add("--text", options.text, path("FILE...", PathOf::existing),
             "your own text instead: files, or directories of *.txt; a file is a document", kAlone)
        .excludes = "--data";
    list.add("--output", options.output, path("DIR"), "the directory to make, for --data-dir", kAlone)
        .is_required = true;
    list.add("--from", options.from, path("DIR", PathOf::existing_directory),
             "where the downloaded files are (default: npm downloads them)", kAlone);
    list.add("--tokenizer", options.tokenizer, tokenizer_name(),
             "of text: GPT-2's byte pairs (50257 tokens), bytes (257), or a file's (default: gpt2)", kAlone);
    list.add("--validation", options.validation, number(0.0001, 1, "0.05"),
             "the part of a text's tokens to test with (default: 0.05)", kAlone);
    return list;
}

OptionList export_options(ExportOptions& options) {
    OptionList list;
    list.add("--checkpoint,--checkpoint-dir", options.checkpoint, path("DIR"),
             "gpt's checkpoints, of which the newest, or one", kAlone)
        .is_required = true;
    list.add(
        "--format", options.format, one_of(std::vector<std::string>{"safetensors"}),
        "model.safetensors and config.json, as Hugging Face's transformers reads them (default: safetensors)",
        kAlone);
    list.add("--data-dir", options.data_directory, path("DIR"),
             "the data that it was trained on: also write its tokenizer, if it is GPT-2's", kAlone);
    list.add("--output", options.output, path("DIR"), "the directory to make", kAlone).is_required = true;
    list.add("--weights", options.averaged, which_weights(), kWhichWeights, kAlone);
    return list;
}

OptionList evaluate_options(EvaluateOptions& options) {
    OptionList list;
    list.add("--checkpoint-dir,--checkpoint", options.checkpoint, path("DIR"),
             "where the checkpoints are, of which the newest counts, or one", kPlaceOfNode)
        .is_required = true;
    list.add("--data-dir", options.data_directory, path("DIR"),
             fmt::format("the data whose test set counts (default: {})", kFashionMnistDirectory.string()),
             kPlaceOfNode);
    list.add("--data", options.mix, data_mix(),
             "gpt: several sets instead, each tested, and their mix by weight", kPlaceOfNode)
        .excludes = "--data-dir";
    list.add("--tokenizer", options.tokenizer, path("bytes|FILE"),
             "gpt: the training's, of texts and --tasks (default: the one beside the data)", kPlaceOfNode);
    list.add("--bad-samples", options.bad_samples, bad_samples(),
             "texts that cannot be read, as the training took them (default: refuse)", kCourse);
    list.add("--cache-dir", options.cache, path("DIR"),
             "where the tokens of texts are kept (default: that of a training without it)", kCacheOfNode);
    list.add("--data-split,--split", options.split, train_test_rest(),
             "gpt: the training's, of a set without test files (default: the last 1/20 to test)", kCourse);
    list.add("--precision", options.precision, precision_name(),
             "of activations (default: that of the training)", kCourse);
    list.add("--device", options.device, device_choice(), "auto: a GPU if there is one (default: auto)",
             own_of_a_rank("the devices that are opened are compared"));
    list.add("--tasks", options.tasks, path("FILE...", PathOf::existing),
             "gpt: questions with choices, or texts whose last word is asked for, as lines of JSON",
             kPlaceOfNode);
    list.add("--weights", options.averaged, which_weights(), kWhichWeights, kCourse);
    list.add("--json", options.json, path("FILE"), "also write the last line to this file", kWrittenByRank0);
    return list;
}

OptionList find_rate_options(RangeOptions& options) {
    OptionList list;
    list.add("--lr-min", options.lowest, positive("1e-6", Bits::fp32),
             fmt::format("learning rate of the first step (default: {})", options.lowest), kCourse);
    list.add("--lr-max", options.highest, positive("1.0", Bits::fp32),
             fmt::format("and of the last one (default: {})", options.highest), kCourse);
    list.add("--lr-steps", options.steps, whole(3, kMillion),
             fmt::format("steps (default: {})", options.steps), kCourse);
    list.add("--lr-mode", options.scale,
             one_of<RateScale>({{"exponential", RateScale::exponential}, {"linear", RateScale::linear}}),
             "by which the rate rises: the same factor or the same number each step (default: exponential)",
             kCourse);
    list.add(
        "--lr-early-stop", options.explosion, number(1, 1e30, "4.0"),
        fmt::format("end where the smooth loss is X times its smallest (default: {})", options.explosion),
        kCourse);
    return list;
}

std::string prepare_footer() {
    std::vector<std::string> rows;
    for (const Source& source : kSources)
        rows.push_back(fmt::format("  {:<15} {:<40} {}", source.name, source.what, how_to_fetch(source)));
    return fmt::format(
        "One command downloads each set: `prepare` runs it if there are npm and a network, else you do. The\n"
        "SHA-256 is checked:\n{}\n"
        "GPT-2's tokens also need {}. If several ranks do this at the same time, one works\n"
        "and the others wait.",
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
    list.add("--checkpoint-dir,--checkpoint", options.checkpoint_directory, path("DIR"),
             "where gpt's checkpoints are", kAlone)
        .is_required = true;
    list.add("--data-dir", options.data_directory, path("DIR"),
             "the data that it was trained on, for the tokenizer", kAlone)
        .is_required = true;
    list.add("--prompt", options.prompt, any_text("TEXT"), "the beginning of the text (default: nothing)",
             kAlone);
    list.add("--tokens", options.tokens, whole(1, kMillion), "how many to write (default: 100)", kAlone);
    list.add("--temperature", options.drawing.temperature, number(0, 1000, "0.8"),
             "below 1, likelier tokens come more often; 0: always the likeliest (default: 1)", kAlone);
    list.add("--top-k", options.drawing.top_k, whole(1, 65536),
             "draw from the N likeliest (default: from all)", kAlone);
    list.add("--top-p", options.drawing.top_p, number(1e-6, 1, "0.9"),
             "of these, from the likeliest whose probabilities sum to X (default: 1)", kAlone);
    list.add("--seed", options.seed, whole(0, kLargest), "the same seed gives the same text (default: 1)",
             kAlone);
    list.add("--precision", options.precision, precision_name(),
             "of activations, whatever it was trained in (default: fp32)", kAlone);
    list.add("--weights", options.averaged, which_weights(), kWhichWeights, kAlone);
    return list;
}

}  // namespace dp::trainer
