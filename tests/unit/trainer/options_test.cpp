// SPDX-License-Identifier: Apache-2.0
//
// The command line: what each way of writing it yields, and which line each mistake gets.
#include "trainer/commands/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "trainer/commands/preparation.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

Settings settings_for(const Options& said, const ModelInfo& info) {
    return completed(said, info).training;
}

// What a run of that model makes of the words.
Result<Options> fitted(const Words& words, const char* model, std::optional<std::int64_t> vocabulary = {}) {
    Parsed parsed = parse_options(words);
    if (!parsed.options) return fail(Fault::usage, parsed.text);
    Options options = completed(std::move(*parsed.options), *find_model(model));
    if (auto fits = fit(options, vocabulary); !fits) return tl::make_unexpected(fits.error());
    return options;
}

Options options(const Words& words) {
    const Parsed parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    return parsed.options.value_or(Options{});
}

TEST(Options, NothingSaidMeansTheDefaults) {
    const Options said = options({});
    EXPECT_EQ(said.command, Command::run);
    EXPECT_EQ(said.model, "");
    EXPECT_EQ(said.device.choice, DeviceChoice::automatic);
    EXPECT_EQ(said.device.data_parallel, DataParallel::automatic);
    const Settings settings = settings_for(said, *find_model("linear"));
    EXPECT_EQ(settings.epochs, 50);
    EXPECT_EQ(settings.optimizer, Optimization::adam);
    EXPECT_FALSE(settings.max_steps);
}

TEST(Options, EverythingSaidArrives) {
    const Options said =
        options({"run", "--model=linear", "--epochs", "3", "--batch-size=16", "--lr=0.5", "--seed=9",
                 "--device=cpu", "--data-parallel=off", "--data-dir=/x", "--samples=77", "--steps=7",
                 "--optimizer=sgd", "--json=out.json", "--dump-parameters=p.bin"});
    const Settings settings = settings_for(said, *find_model("ffn"));
    EXPECT_EQ(said.model, "linear");
    EXPECT_EQ(settings.epochs, 3);
    EXPECT_EQ(settings.batch, 16);
    EXPECT_EQ(settings.rate.rate, 0.5);
    EXPECT_EQ(settings.seed, 9u);
    EXPECT_EQ(settings.max_steps, 7);
    EXPECT_EQ(settings.optimizer, Optimization::sgd);
    EXPECT_EQ(said.device.choice, DeviceChoice::cpu);
    EXPECT_EQ(said.device.data_parallel, DataParallel::off);
    EXPECT_EQ(said.data.directory, "/x");
    EXPECT_EQ(said.data.samples, 77);
    EXPECT_EQ(said.output.json, "out.json");
    EXPECT_EQ(said.output.dump, "p.bin");
}

TEST(Options, StepsAloneTakeAsManyEpochsAsTheyNeed) {
    const auto epochs = [](const Words& words) {
        return settings_for(options(words), *find_model("linear")).epochs;
    };
    EXPECT_EQ(epochs({}), 50);
    EXPECT_EQ(epochs({"--epochs=3"}), 3);
    EXPECT_EQ(epochs({"--steps=7"}), std::nullopt);
    EXPECT_EQ(epochs({"--epochs=3", "--steps=7"}), 3);
}

// A script's variable that is not set: CLI11 would take the next word for the value, or nothing.
TEST(Options, AnEmptyValueIsRefused) {
    for (const Words& words :
         {Words{"--checkpoint-dir=", "--model=linear"}, Words{"--model=linear", "--checkpoint-dir", ""},
          Words{"--json=", "--epochs", "1"}, Words{"--metrics", ""}, Words{"--data-parallel="},
          Words{"prepare", "--output=", "--text", "x"}, Words{"report", ""}}) {
        const Parsed parsed = parse_options(words);
        ASSERT_FALSE(parsed.options) << words.front();
        EXPECT_EQ(parsed.code, 2);
        EXPECT_THAT(parsed.text, HasSubstr("is empty; give "));
        EXPECT_EQ(parsed.text.find('\n'), std::string::npos) << parsed.text;
    }
    EXPECT_THAT(parse_options({"--checkpoint-dir=", "--model=linear"}).text,
                StartsWith("--checkpoint-dir is empty; "));
    EXPECT_THAT(parse_options({"report", ""}).text, StartsWith("the last word is empty; "));
    // The text that `generate` continues may be empty.
    for (const Words& prompt : {Words{"--prompt="}, Words{"--prompt", ""}}) {
        Words words{"generate", "--checkpoint-dir=c", "--data-dir=d"};
        words.insert(words.end(), prompt.begin(), prompt.end());
        words.push_back("--tokens=3");
        const Options said = options(words);
        EXPECT_EQ(said.generate.prompt, "");
        EXPECT_EQ(said.generate.tokens, 3);
    }
}

// So that a job script's can be changed from behind it.
TEST(Options, OfAnOptionSaidTwiceTheLastCounts) {
    const Options said = options({"--model=cnn", "--lr=0.5", "--data-parallel=on", "--min-throughput=9",
                                  "run", "--model=ffn", "--lr=0.25", "--data-parallel=off",
                                  "--min-throughput=8", "--samples", "7", "--samples", "6"});
    EXPECT_EQ(said.model, "ffn");
    EXPECT_EQ(said.training.rate.rate, 0.25);
    EXPECT_EQ(said.device.data_parallel, DataParallel::off);
    EXPECT_EQ(said.output.min_throughput, 8);
    EXPECT_EQ(said.data.samples, 6);
    // All of them are looked at.
    EXPECT_THAT(parse_options({"--epochs=many", "--epochs=2"}).text, HasSubstr("--epochs"));
}

TEST(Options, PrecisionAndDeterminismArrive) {
    const auto precision = [](const Words& words) {
        return settings_for(options(words), *find_model("ffn")).precision;
    };
    EXPECT_EQ(precision({}), Precision::fp32);
    EXPECT_EQ(precision({"--precision=bf16"}), Precision::bf16);
    EXPECT_EQ(precision({"--precision=fp32"}), Precision::fp32);
    EXPECT_EQ(precision({"info", "--bf16"}), Precision::bf16);
    EXPECT_FALSE(options({}).device.deterministic);
    EXPECT_TRUE(options({"--deterministic"}).device.deterministic);
    EXPECT_FALSE(options({}).device.cuda_graphs);
    EXPECT_TRUE(options({"--cuda-graphs=on"}).device.cuda_graphs);
    EXPECT_FALSE(options({"--cuda-graphs=off"}).device.cuda_graphs);
    EXPECT_THAT(parse_options({"--precision=fp16"}).text, HasSubstr("'fp16' is not one of fp32, bf16"));
    EXPECT_THAT(parse_options({"--bf16", "--precision=fp32"}).text, HasSubstr("--precision excludes --bf16"));
    EXPECT_EQ(parse_options({"--bf16", "--precision=fp32"}).code, 2);
}

TEST(Options, CheckpointsArrive) {
    const auto plan = [](const Words& words) {
        return settings_for(options(words), *find_model("ffn")).checkpoints;
    };
    EXPECT_TRUE(plan({}).directory.empty());
    EXPECT_EQ(plan({"--checkpoint-dir=c"}).directory, "c");
    EXPECT_EQ(plan({"--checkpoint-dir=c"}).every, 0);
    EXPECT_EQ(plan({"--checkpoint-dir=c"}).keep, 2);
    EXPECT_EQ(plan({"--checkpoint-dir=c"}).resume, Resume::automatic);
    const CheckpointPlan all =
        plan({"--checkpoint_dir=c", "--save_interval=300", "--keep=5", "--resume=must"});
    EXPECT_EQ(all.every, 300);
    EXPECT_EQ(all.keep, 5);
    EXPECT_EQ(all.resume, Resume::must);
    EXPECT_EQ(plan({"--checkpoint-dir=c", "--resume=never"}).resume, Resume::never);
}

TEST(Options, WhereTheDataIsArrives) {
    const DataRequest data =
        options({"--data=a:b:2,c:0.5", "--split", "949,50,1", "--bad-samples=skip"}).data;
    ASSERT_TRUE(data.mix && data.split);
    ASSERT_EQ(data.mix->parts.size(), 2u);
    EXPECT_EQ(data.mix->parts[0].where, "a:b");
    EXPECT_EQ(data.mix->parts[0].weight, 2);
    EXPECT_EQ(data.mix->parts[1].where, "c");
    EXPECT_EQ(data.mix->parts[1].weight, 0.5);
    EXPECT_EQ(data.split->train, 949);
    EXPECT_EQ(data.split->test, 50);
    EXPECT_EQ(data.split->rest, 1);
    EXPECT_EQ(data.bad_samples, BadSamples::skip);
    EXPECT_FALSE(options({}).data.mix || options({}).data.split);
    EXPECT_EQ(options({}).data.bad_samples, BadSamples::refuse);
    EXPECT_EQ(options({"--data-split=9,1"}).data.split->rest, 0);
}

TEST(Options, HowToOptimiseArrives) {
    const Settings settings = settings_for(
        options({"--lr=0.1", "--min-lr=0.01", "--lr-schedule=cosine", "--lr-warmup-fraction=0.05",
                 "--weight-decay=0.2", "--clip-grad=1", "--accumulate=4", "--skip-bad-steps"}),
        *find_model("ffn"));
    EXPECT_EQ(settings.rate.rate, 0.1);
    EXPECT_EQ(settings.rate.minimum, 0.01);
    EXPECT_EQ(settings.rate.shape, LrDecay::cosine);
    EXPECT_EQ(settings.rate.warmup, 0.05);
    EXPECT_EQ(settings.weight_decay, 0.2);
    EXPECT_EQ(settings.clip, 1.0);
    EXPECT_EQ(settings.accumulate, 4);
    EXPECT_TRUE(settings.skip_bad_steps);
    const Settings nothing_said = settings_for(options({}), *find_model("ffn"));
    EXPECT_EQ(nothing_said.rate.shape, LrDecay::constant);
    EXPECT_EQ(nothing_said.accumulate, 1);
    EXPECT_FALSE(nothing_said.clip);
    EXPECT_FALSE(nothing_said.skip_bad_steps);
    EXPECT_EQ(options({"--lr-decay-style=linear"}).training.rate.shape, LrDecay::linear);
}

// The optimizer of the DLI tutorial's script, in its own words.
TEST(Options, MegatronsOptimizerArrives) {
    const Settings settings = settings_for(options({"--optimizer",
                                                    "adam",
                                                    "--adam-beta1",
                                                    "0.8",
                                                    "--adam-beta2",
                                                    "0.95",
                                                    "--adam-eps",
                                                    "1e-6",
                                                    "--lr",
                                                    "6e-5",
                                                    "--min-lr",
                                                    "6e-6",
                                                    "--lr-decay-style",
                                                    "cosine",
                                                    "--lr-decay-iters",
                                                    "800",
                                                    "--lr-warmup-fraction",
                                                    ".01",
                                                    "--clip-grad",
                                                    "1.0",
                                                    "--weight-decay",
                                                    "1e-1",
                                                    "--use-distributed-optimizer"}),
                                           *find_model("gpt"));
    EXPECT_EQ(settings.constants.beta1, 0.8);
    EXPECT_EQ(settings.constants.beta2, 0.95);
    EXPECT_EQ(settings.constants.epsilon, 1e-6);
    EXPECT_EQ(settings.rate.steps, 800);
    EXPECT_NEAR(rate_at(settings.rate, 100, 100), 5.822e-5, 5e-9);
    EXPECT_TRUE(settings.shard_optimizer);
    EXPECT_EQ(
        settings_for(options({"--optimizer=sgd", "--sgd-momentum=0"}), *find_model("ffn")).constants.momentum,
        0);
    EXPECT_TRUE(options({"--shard-optimizer"}).training.shard_optimizer);
    const Settings nothing_said = settings_for(options({}), *find_model("ffn"));
    EXPECT_EQ(nothing_said.constants.beta1, 0.9);
    EXPECT_EQ(nothing_said.constants.beta2, 0.999);
    EXPECT_EQ(nothing_said.constants.epsilon, 1e-8);
    EXPECT_EQ(nothing_said.constants.momentum, 0.9);
    EXPECT_FALSE(nothing_said.rate.steps);
    EXPECT_FALSE(nothing_said.shard_optimizer);
}

TEST(Options, HowGptBeginsAndWhatItDropsArrives) {
    const auto said = fitted(
        {"--model=gpt", "--init-method-std=0.006", "--hidden-dropout=0.1", "--attention-dropout=0.2"}, "gpt");
    ASSERT_TRUE(said);
    EXPECT_EQ(said->shape.gpt.initial_deviation, 0.006f);
    EXPECT_EQ(said->shape.gpt.hidden_dropout, 0.1f);
    EXPECT_EQ(said->shape.gpt.attention_dropout, 0.2f);
    const auto nothing_said = fitted({}, "gpt");
    ASSERT_TRUE(nothing_said);
    EXPECT_EQ(nothing_said->shape.gpt.initial_deviation, 0.02f);
    EXPECT_EQ(nothing_said->shape.gpt.hidden_dropout, 0);
    EXPECT_EQ(nothing_said->shape.gpt.attention_dropout, 0);
}

TEST(Options, AGptSizeIsFourOptionsOfWhichEachMayBeAnother) {
    const auto said = fitted({"--gpt-size=124M", "--num-layers=3"}, "gpt", 50000);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->shape.gpt.layers, 3);
    EXPECT_EQ(said->shape.gpt.hidden, 768);
    EXPECT_EQ(said->shape.gpt.sequence, 1024);
    EXPECT_EQ(said->shape.gpt.vocabulary, 50000);
    EXPECT_EQ(said->data.sequence, 1024);
    EXPECT_EQ(said->data.vocabulary, 50000);
}

// The options that were given are named, and no others.
TEST(Options, ThatTheModelOrOptimizerDoesNotKnowAreRefused) {
    const std::pair<Words, std::string> cases[] = {
        {{"--hidden-dropout=0.1"},
         "--hidden-dropout is only for gpt, and this run uses ffn; leave it out, or give --model=gpt"},
        {{"--init-from=w"},
         "--init-from is only for gpt, and this run uses ffn; leave it out, or give --model=gpt"},
        {{"--num-layers=2", "--recompute"},
         "--num-layers, --recompute are only for gpt, and this run uses ffn; leave them out, or give "
         "--model=gpt"},
        {{"--init-features=8"},
         "--init-features is only for unet2d, and this run uses ffn; leave it out, or give --model=unet2d"},
        {{"--sgd-momentum=0.9"},
         "--sgd-momentum is only for sgd, and this run uses adam; leave it out, or give --optimizer=sgd"},
        {{"--adam-eps=1e-6", "--optimizer=sgd"},
         "--adam-eps is only for adam, and this run uses sgd; leave it out, or give --optimizer=adam"},
    };
    for (const auto& [words, says] : cases) {
        const auto refused = fitted(words, "ffn");
        ASSERT_FALSE(refused) << says;
        EXPECT_EQ(refused.error().fault, Fault::usage);
        EXPECT_EQ(refused.error().message, says);
    }
}

TEST(Options, ThatDoNothingAreSaidToDoNothing) {
    const auto said = [](const Words& words) { return options_without_effect(options(words)); };
    EXPECT_THAT(
        said({"--lr-decay-iters=10"}),
        ElementsAre("--lr-decay-iters does nothing: the learning rate is constant; give --lr-schedule, or "
                    "leave it out"));
    EXPECT_THAT(said({"--min-lr=1e-5"}), ElementsAre(StartsWith("--min-lr does nothing: ")));
    EXPECT_THAT(said({"--lr-decay-iters=10", "--lr-warmup-fraction=0.1"}), IsEmpty());
    EXPECT_THAT(said({"--lr-wsd-decay-iters=10", "--lr-schedule=cosine"}),
                ElementsAre(StartsWith("--lr-wsd-decay-iters does nothing without --lr-schedule=wsd")));
    EXPECT_THAT(said({"--lr-wsd-decay-iters=10", "--lr-decay-style=wsd"}), IsEmpty());
    EXPECT_THAT(said({"--lr-decay-iters=10", "--min-lr=1e-5", "--lr-schedule=cosine"}), IsEmpty());
    EXPECT_THAT(said({"--init-method-std=0.1", "--init-from=w"}),
                ElementsAre("--init-method-std does nothing: --init-from has the weights"));
    EXPECT_THAT(said({"--init-from=w"}), IsEmpty());
    EXPECT_THAT(said({"measure-performance", "--init-from=w"}),
                ElementsAre("--init-from does nothing: measure-performance keeps no weights"));
    EXPECT_THAT(said({"measure-performance", "--json=here"}), IsEmpty());
    EXPECT_THAT(said({"measure-performance", "--metrics=m", "--checkpoint-dir=c"}),
                ElementsAre("measure-performance repeats one step: it writes nothing for "
                            "--checkpoint-dir, --metrics"));
}

TEST(Options, OfOtherProgramsAreTakenOrOursIsNamed) {
    EXPECT_EQ(options({"--optimizer=adamw"}).training.optimizer, Optimization::adam);
    EXPECT_EQ(options({"--gradient-accumulation-steps=3"}).training.accumulate, 3);
    EXPECT_EQ(options({"--micro-batch-size=3"}).training.batch, 3);
    for (const auto& [theirs, ours] :
         {std::pair<const char*, const char*>{"--learning-rate=1", "--lr"},
          {"--train-batch-size=4", "--batch-size"},
          {"--train_batch_size", "--batch-size"},
          {"--global-batch-size=8", "--batch-size and --gradient-accumulation-steps"},
          {"--train-iters=10", "--steps"},
          {"--model_name_or_path=gpt2", "--init-from"},
          {"--save=c", "--checkpoint-dir"},
          {"--load=c", "--checkpoint-dir"}}) {
        const std::string name = std::string(theirs).substr(0, std::string(theirs).find('='));
        EXPECT_THAT(parse_options({theirs}).text, HasSubstr("; here it is " + std::string(ours))) << theirs;
    }
}

TEST(Options, ALogStyleBringsWhatItsLinesNeed) {
    const auto settings = [](const Words& words) { return settings_for(options(words), *find_model("ffn")); };
    EXPECT_EQ(settings({"--log-style=pytorch"}).log_every, 100);
    EXPECT_TRUE(settings({"--log-style=pytorch"}).log_single);
    EXPECT_EQ(settings({"--log-style=megatron", "--log-interval=10"}).log_every, 10);
    EXPECT_TRUE(settings({"--log-style=megatron"}).skip_bad_steps);
    EXPECT_EQ(settings({"--log-style=samba"}).log_every, 0);
    EXPECT_EQ(settings({"--log-interval=10"}).log_every, 0);
    EXPECT_EQ(settings({"--log-interval=10", "--metrics=m.jsonl"}).log_every, 10);
    EXPECT_EQ(settings({"--tensorboard=runs"}).log_every, 100);
    EXPECT_FALSE(settings({"--metrics=m.jsonl"}).skip_bad_steps) << "the training stays as it is";
}

TEST(Options, WhatASubcommandTakesOfItsOwnArrives) {
    const Options measuring = options({"measure-performance", "--model=cnn", "--iterations=7", "--warmup=3"});
    EXPECT_EQ(measuring.command, Command::measure);
    EXPECT_EQ(measuring.model, "cnn");
    EXPECT_EQ(measuring.measure.iterations, 7);
    EXPECT_EQ(measuring.measure.warmup, 3);
    const Options compiling = options({"compile", "--model=cnn", "--force", "--cache-dir=c"});
    EXPECT_EQ(compiling.command, Command::compile);
    EXPECT_TRUE(compiling.cache.force);
    EXPECT_EQ(compiling.cache.directory, "c");
    const Options reporting = options({"report", "a.json", "b.json", "--csv"});
    EXPECT_EQ(reporting.command, Command::report);
    EXPECT_EQ(reporting.report.files.size(), 2u);
    EXPECT_TRUE(reporting.report.csv);
}

TEST(Options, ASizeIsTakenInBytesOrWithAUnit) {
    EXPECT_FALSE(options({}).device.memory_limit);
    EXPECT_EQ(options({"--memory-limit=1000"}).device.memory_limit, 1000);
    EXPECT_EQ(options({"--memory-limit=2GiB"}).device.memory_limit, std::int64_t{2} << 30);
    EXPECT_EQ(options({"--memory_limit", "512M"}).device.memory_limit, 512 << 20);
    EXPECT_EQ(options({"--memory-limit=15.78GiB"}).device.memory_limit, 16943645982);
    EXPECT_EQ(options({"--memory-limit=1.5 kb"}).device.memory_limit, 1536);
}

TEST(Options, TheCacheIsWhereTheySayOrNowhere) {
    EXPECT_EQ(cache_directory(options({"--cache-dir=/c"}).cache), "/c");
    EXPECT_FALSE(cache_directory(options({"--cache-dir=none"}).cache));
    EXPECT_FALSE(cache_directory(options({"--cache_dir=/c", "--no_cache"}).cache));
}

// Computed with in 64 bits.
TEST(Options, AThroughputMayBeWhatHasNo32Bits) {
    EXPECT_EQ(options({"--min-throughput=1e-60", "--max-throughput=1e60"}).output.max_throughput, 1e60);
    EXPECT_EQ(options({"--min-throughput=5", "--max-throughput=5"}).output.min_throughput, 5);
}

// As the seeds' scripts write them, each one; what is said of an option stays as it is.
TEST(Options, AnyOptionIsTakenWithUnderscores) {
    EXPECT_EQ(options({"--weight_decay", "0.1"}).training.weight_decay, 0.1);
    EXPECT_EQ(options({"--weight_decay=0.2"}).training.weight_decay, 0.2);
    EXPECT_EQ(options({"--lr_decay_style=cosine", "--min_lr=1e-5"}).training.rate.shape, LrDecay::cosine);
    EXPECT_TRUE(options({"--use_distributed_optimizer", "--skip_bad_steps"}).training.skip_bad_steps);
    EXPECT_EQ(options({"info", "--ranks_per_node=2"}).info.ranks_per_node, 2);
    EXPECT_EQ(options({"--data_dir=a_b=c_d"}).data.directory, "a_b=c_d");
    EXPECT_EQ(options({"--json", "a_b"}).output.json, "a_b");
    EXPECT_EQ(options({"--json", "--data_dir"}).output.json, "--data_dir");
    EXPECT_EQ(options({"--bf16", "--data_dir", "a_b"}).data.directory, "a_b");
    const Options said =
        options({"generate", "--checkpoint_dir=c", "--data_dir", "d_e", "--prompt", "--top_k", "--top_k=3"});
    EXPECT_EQ(said.generate.prompt, "--top_k");
    EXPECT_EQ(said.generate.drawing.top_k, 3);
    EXPECT_EQ(
        options({"generate", "--checkpoint-dir=c", "--data-dir=d", "--top-p=0.9"}).generate.drawing.top_p,
        0.9);
    EXPECT_EQ(options({"report", "--", "--top_k"}).report.files.front(), "--top_k");
}

TEST(Options, UnderscoresAndSubcommandsAfterOptionsAreTaken) {
    EXPECT_EQ(options({"--batch_size", "16"}).training.batch, 16);
    EXPECT_EQ(options({"--data_dir=/x"}).data.directory, "/x");
    EXPECT_EQ(options({"--data_parallel=on"}).device.data_parallel, DataParallel::on);
    EXPECT_EQ(options({"--model=ffn", "info"}).command, Command::info);
    EXPECT_EQ(options({"info", "--model=ffn"}).command, Command::info);
    EXPECT_EQ(options({"run", "--data-parallel"}).device.data_parallel,
              DataParallel::on);  // as in the SN10 tutorial
}

TEST(Options, MistakesGetOneLineThatSaysWhatWasWrong) {
    struct Case {
        Words words;
        std::string says;
    };
    const Case cases[] = {
        {{"--epochs=0"}, "--epochs: '0' is not a whole number from 1"},
        {{"--epochs=abc"}, "--epochs: 'abc' is not a whole number"},
        {{"--epochs=1.5"}, "--epochs: '1.5' is not a whole number"},
        {{"--epochs=99999999999999999999"}, "--epochs: '99999999999999999999' is not a whole number"},
        {{"--epochs"}, "--epochs needs a value"},
        {{"--batch-size=-4"}, "--batch-size: '-4' is not a whole number"},
        {{"--batch_size=1000001"}, "'1000001' is not a whole number from 1 to 1000000"},
        {{"--lr=0"}, "--lr: '0' is not a number above 0"},
        {{"--lr=nan"}, "--lr: 'nan' is not a number above 0"},
        {{"--lr=inf"}, "--lr: 'inf' is not a number above 0"},
        {{"--lr=1e-3x"}, "--lr: '1e-3x' is not a number above 0"},
        {{"--lr=1e-320"}, "--lr: '1e-320' is 0 as a 32-bit float; give a number such as 0.001"},
        {{"--lr=1e39"}, "--lr: '1e39' is infinite as a 32-bit float; "},
        {{"--clip-grad", "1e-60"}, "--clip-grad: '1e-60' is 0 as a 32-bit float; "},
        {{"--init-method-std", "1e-60"}, "--init-method-std: '1e-60' is 0 as a 32-bit float; "},
        {{"--model=unet2d", "--image-size=300"}, "--image-size: '300' is not one of 256, 512, 1024"},
        {{"--lr-schedule=step"}, "'step' is not one of constant, linear, cosine, wsd"},
        {{"--min-lr=-1"}, "--min-lr: '-1' is not a number from 0"},
        {{"--lr-warmup-fraction=1"}, "--lr-warmup-fraction: '1' is not a number from 0 to below 1"},
        {{"--lr-decay-iters=0"}, "--lr-decay-iters: '0' is not a whole number from 1"},
        {{"--adam-beta1=1"}, "--adam-beta1: '1' is not a number from 0 to below 1, such as 0.9"},
        {{"--adam-beta1=0.99999999"}, "--adam-beta1: '0.99999999' is not a number from 0 to below 1"},
        {{"--adam-beta1=-0.1"}, "--adam-beta1: '-0.1' is not a number from 0 to below 1"},
        {{"--adam-beta2=nan"}, "--adam-beta2: 'nan' is not a number from 0 to below 1, such as 0.95"},
        {{"--adam-eps=0"}, "--adam-eps: '0' is not a number from 1e-30"},
        {{"--adam-eps=1e-60"}, "--adam-eps: '1e-60' is not a number from 1e-30"},
        {{"--sgd-momentum=1.5", "--optimizer=sgd"},
         "--sgd-momentum: '1.5' is not a number from 0 to below 1"},
        {{"--init-method-std=0"}, "--init-method-std: '0' is not a number above 0"},
        {{"--hidden-dropout=1"}, "--hidden-dropout: '1' is not a number from 0 to below 1, such as 0.1"},
        {{"--attention-dropout=-0.1"},
         "--attention-dropout: '-0.1' is not a number from 0 to below 1, such as 0.1"},
        {{"--attention-dropout=x"}, "--attention-dropout: 'x' is not a number from 0 to below 1"},
        {{"info", "--ranks=0"}, "--ranks: '0' is not a whole number from 1"},
        {{"info", "--ranks-per-node=0"}, "--ranks-per-node: '0' is not a whole number from 1"},
        {{"info", "--ranks-per-node=-1"}, "--ranks-per-node: '-1' is not a whole number from 1"},
        {{"--weight-decay=nan"}, "--weight-decay: 'nan' is not a number"},
        {{"--clip-grad=0"}, "--clip-grad: '0' is not a number above 0, such as 1.0"},
        {{"--min-throughput=0"}, "--min-throughput: '0' is not a number above 0, such as 1000"},
        {{"--memory-limit=1.2.3G"}, "'1.2.3G' is not a size above 0"},
        {{"--memory-limit=0.1"}, "'0.1' is not a size above 0"},
        {{"--memory-limit=GiB"}, "'GiB' is not a size above 0"},
        {{"--memory-limit=nan"}, "'nan' is not a size above 0"},
        {{"--accumulate=0"}, "--accumulate: '0' is not a whole number from 1"},
        {{"--min-throughput=fast"}, "--min-throughput: 'fast' is not a number above 0"},
        {{"--min-throughput=10", "--max-throughput=5"},
         "--min-throughput: 10 is more than --max-throughput, which is 5: no run satisfies both; "},
        {{"--log-style=xml"}, "'xml' is not one of plain, pytorch, megatron, samba"},
        {{"--log-interval=0"}, "--log-interval: '0' is not a whole number from 1"},
        {{"--steps=0"}, "--steps: '0' is not a whole number"},
        {{"--samples=0"}, "--samples: '0' is not a whole number"},
        {{"--seed=-1"}, "--seed: '-1' is not a whole number"},
        {{"--model=resnet"}, "--model: 'resnet' is not one of cnn, ffn, gpt, linear, unet2d"},
        {{"--device=gpu"}, "--device: 'gpu' is not one of auto, cpu, cuda"},
        {{"--data-parallel=yes"}, "--data-parallel: 'yes' is not one of auto, on, off"},
        {{"--optimizer=adagrad"}, "--optimizer: 'adagrad' is not one of sgd, adam"},
        {{"--checkpoint-dir"}, "--checkpoint-dir needs a value"},
        {{"--checkpoint-dir="}, "--checkpoint-dir"},
        {{"--save-interval=10"}, "--save-interval requires --checkpoint-dir"},
        {{"--resume=must"}, "--resume requires --checkpoint-dir"},
        {{"--keep=1"}, "--keep requires --checkpoint-dir"},
        {{"--checkpoint-dir=c", "--save-interval=0"}, "--save-interval: '0' is not a whole number from 1"},
        {{"--checkpoint-dir=c", "--keep=0"}, "--keep: '0' is not a whole number from 1"},
        {{"--checkpoint-dir=c", "--resume=yes"}, "--resume: 'yes' is not one of auto, must, never"},
        {{"--memory-limit=0"}, "--memory-limit: '0' is not a size above 0"},
        {{"--data-split=969"},
         "--data-split: '969' is not the parts to train on, to test with and to leave, such as 969,30,1"},
        {{"--data-split=1,0"}, "--data-split: '1,0' is not the parts"},
        {{"--data-split=1,nan,2"}, "--data-split: '1,nan,2' is not the parts"},
        {{"--data-split=1,2,3,4"}, "--data-split: '1,2,3,4' is not the parts"},
        {{"--data=wiki"},
         "--data: 'wiki' is not DIR:WEIGHT, with commas between several, such as wiki:0.7,code:0.3"},
        {{"--data=wiki:0.7,code:0"}, "--data: 'code:0' is not DIR:WEIGHT"},
        {{"--data=wiki:1,"}, "--data: '' is not DIR:WEIGHT"},
        {{"--data=:1"}, "--data: ':1' is not DIR:WEIGHT"},
        {{"--data=wiki:1", "--data-dir=wiki"}, "--data"},
        {{"--bad-samples=keep"}, "--bad-samples: 'keep' is not one of refuse, skip"},
        {{"--memory-limit=-5"}, "'-5' is not a size above 0, such as 512MiB or 1.5G"},
        {{"--memory-limit=5XB"}, "'5XB' is not a size above 0"},
        {{"--memory-limit=99999999999GiB"}, "'99999999999GiB' is not a size above 0"},
        {{"--iterations=5"}, "--iterations is an option of `trainer measure-performance`; "},
        {{"measure-performance", "--iterations=0"}, "--iterations: '0' is not a whole number from 1"},
        {{"report"}, "FILE is required"},
        {{"report", "a", "--csv", "--json"}, "--csv excludes --json"},
        {{"report", "a", "--model=ffn"}, "--model is for training; `trainer report` does not take it; "},
        {{"--no-such"}, "no such option: --no-such; `"},
        {{"--json", "s.json", "--jsn=a:b"}, "no such option: --jsn; do you mean --json?; "},
        {{"--nosuch", "a:b"}, "no such option: --nosuch; `"},
        {{"--foo", "1", "--bar", "2", "--steps", "3"}, "no such option: --foo; `"},
        {{"--foo", "compile", "--bar"}, "no such option: --foo; `"},
        {{"--", "foo", "bar"}, "no such subcommand: foo; `"},
        {{"--epoch_count=3"}, "no such option: --epoch-count; "},
        {{"--force"}, "--force is an option of `trainer compile`; "},
        {{"--epoch=3"}, "no such option: --epoch; do you mean --epochs?; "},
        {{"--batch=3"}, "no such option: --batch; do you mean --batch-size?; "},
        {{"--wieght-decay=3"}, "no such option: --wieght-decay; do you mean --weight-decay?; "},
        {{"comple"}, "no such subcommand: comple; do you mean compile?; "},
        {{"info", "info"}, "unexpected argument of `trainer info`: info; `"},
        {{"prepare", "mnist", "--output=o"}, "unexpected argument of `trainer prepare`: mnist; `"},
        {{"generate", "--token=3", "--checkpoint-dir=c", "--data-dir=d"},
         "no such option: --token; do you mean --tokens?; "},
        {{"--cache-dir"}, "--cache-dir needs a value"},
    };
    for (const auto& [words, says] : cases) {
        const Parsed parsed = parse_options(words);
        EXPECT_FALSE(parsed.options) << words[0] << " was taken";
        EXPECT_EQ(parsed.code, 2);
        EXPECT_THAT(parsed.text, HasSubstr(says));
        EXPECT_THAT(parsed.text, HasSubstr("`trainer --help`"));
        EXPECT_EQ(parsed.text.find('\n'), std::string::npos) << "more than one line: " << parsed.text;
    }
}

TEST(Options, HelpHasEveryOptionUnderItsHeadingAndTheExitCodes) {
    const Parsed parsed = parse_options({"--help"});
    EXPECT_FALSE(parsed.options);
    EXPECT_EQ(parsed.code, 0);
    Options options;
    const OptionList list = training_options(options);
    for (const OptionRow& row : list.rows()) {
        EXPECT_THAT(parsed.text, HasSubstr("\n  " + row.name()));
        EXPECT_THAT(parsed.text, HasSubstr("\n" + row.heading + ":\n"));
    }
    for (const char* word : {"\n  compile ", "\n  measure-performance ", "\n  report ", "\n  info ",
                             "\n  export ", "srun", "--dp-world=auto", "dpctl launch", "Exit codes"})
        EXPECT_THAT(parsed.text, HasSubstr(word));
    EXPECT_THAT(parse_options({"--version"}).text, StartsWith("trainer "));
}

TEST(Options, HelpIsShort) {
    std::istringstream lines(parse_options({"--help"}).text);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 132u) << line;
    EXPECT_LE(count, 123);  // CLI11 2.5 and later have a blank line more
}

// What the message gives as an example is taken.
TEST(Options, ExamplesAreOnesThatTheOptionTakes) {
    Options options;
    const OptionList list = training_options(options);
    int examples = 0;
    for (const OptionRow& row : list.rows()) {
        const std::string complaint = row.type.empty() ? "" : row.set("-").value_or("");
        const auto at = complaint.find("such as ");
        if (at == std::string::npos) continue;
        const std::string example = complaint.substr(at + 8, complaint.find(' ', at + 8) - at - 8);
        EXPECT_EQ(row.set(example), std::nullopt) << row.name() << ": " << complaint;
        ++examples;
    }
    EXPECT_GT(examples, 12);
}

TEST(ModelChoice, WithoutAModelItIsFfnWhereItsDataIsElseLinearAndSaysWhy) {
    const auto ffn = choose_model({}, true);
    ASSERT_TRUE(ffn);
    EXPECT_EQ(ffn->info->name, "ffn");
    EXPECT_THAT(ffn->reason.value_or(""), HasSubstr("because Fashion-MNIST is in /usr/share"));
    const auto linear = choose_model({}, false);
    ASSERT_TRUE(linear);
    EXPECT_EQ(linear->info->name, "linear");
    EXPECT_THAT(linear->reason.value_or(""), HasSubstr("no Fashion-MNIST in /usr/share"));
    EXPECT_THAT(linear->reason.value_or(""), HasSubstr("dataset-fashion-mnist"));
}

TEST(ModelChoice, AModelThatWasAskedForIsNotExplained) {
    const auto linear = choose_model(options({"--model=linear"}), true);
    ASSERT_TRUE(linear);
    EXPECT_EQ(linear->info->name, "linear");
    EXPECT_FALSE(linear->reason);
}

TEST(ModelChoice, DataThatWasAskedForMustBeThere) {
    for (const Words& words : {Words{"--model=ffn"}, Words{"--data-dir=/nowhere"}}) {
        const auto choice = choose_model(options(words), false);
        ASSERT_FALSE(choice);
        EXPECT_EQ(choice.error().fault, Fault::usage);
        EXPECT_THAT(choice.error().message, HasSubstr("no Fashion-MNIST there"));
        EXPECT_THAT(choice.error().message, HasSubstr("--data-dir"));
    }
    EXPECT_TRUE(choose_model(options({"info", "--model=ffn"}), false)) << "info needs no data";
}

}  // namespace
}  // namespace dp::trainer
