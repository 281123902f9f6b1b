// SPDX-License-Identifier: Apache-2.0
//
// What depends on an option is said in its row (parse.hpp). Here each option of a training is tried
// with another value: whether a checkpoint and a plan then still fit is as the row says. A new option fails
// until it has a value here; tests/cluster/test_trainer_ranks.py has values to try the ranks with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "patterns.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/training/checkpointing.hpp"

namespace dp::trainer {
namespace {

using Words = std::vector<std::string>;

// Another value than the default, and what the option needs besides it.
const std::map<std::string, Words> kTried{
    {"--model", {"--model=cnn"}},
    {"--image-size", {"--image-size=512"}},
    {"--init-features", {"--init-features=8"}},
    {"--gpt-size", {"--gpt-size=124M"}},
    {"--num-layers", {"--num-layers=2"}},
    {"--hidden-size", {"--hidden-size=192"}},
    {"--num-attention-heads", {"--num-attention-heads=3"}},
    {"--seq-length", {"--seq-length=128"}},
    {"--vocab-size", {"--vocab-size=60000"}},
    {"--reset-attention-mask", {"--reset-attention-mask"}},
    {"--recompute", {"--recompute"}},
    {"--tensor-parallel", {"--tensor-parallel=2"}},
    {"--sequence-parallel", {"--sequence-parallel"}},
    {"--pipeline-parallel", {"--pipeline-parallel=2"}},
    {"--pipeline-split", {"--pipeline-split=5,1"}},
    {"--pipeline-schedule", {"--pipeline-schedule=gpipe"}},
    {"--virtual-stages", {"--virtual-stages=3", "--pipeline-schedule=interleaved"}},
    {"--init-from", {"--init-from=weights"}},
    {"--lora-rank", {"--lora-rank=4"}},
    {"--lora-alpha", {"--lora-alpha=4", "--lora-rank=4"}},
    {"--init-method-std", {"--init-method-std=0.1"}},
    {"--hidden-dropout", {"--hidden-dropout=0.1"}},
    {"--attention-dropout", {"--attention-dropout=0.1"}},
    {"--epochs", {"--epochs=9"}},
    {"--steps", {"--steps=90"}},
    {"--batch-size", {"--batch-size=7"}},
    {"--accumulate", {"--accumulate=2"}},
    {"--seed", {"--seed=2"}},
    {"--precision", {"--precision=bf16"}},
    {"--bf16", {"--bf16"}},
    {"--deterministic", {"--deterministic"}},
    {"--eval-interval", {"--eval-interval=1"}},
    {"--eval-iters", {"--eval-iters=1", "--eval-interval=1"}},
    {"--early-stopping", {"--early-stopping=3"}},
    {"--optimizer", {"--optimizer=sgd"}},
    {"--lr", {"--lr=0.5"}},
    {"--lr-schedule", {"--lr-schedule=cosine"}},
    {"--min-lr", {"--min-lr=1e-5"}},
    {"--lr-decay-iters", {"--lr-decay-iters=5"}},
    {"--lr-wsd-decay-iters", {"--lr-wsd-decay-iters=1"}},
    {"--lr-warmup-fraction", {"--lr-warmup-fraction=0.1"}},
    {"--ema-decay", {"--ema-decay=0.99"}},
    {"--freeze", {"--freeze=ffn.1"}},
    {"--weight-decay", {"--weight-decay=0.1"}},
    {"--adam-beta1", {"--adam-beta1=0.5"}},
    {"--adam-beta2", {"--adam-beta2=0.5"}},
    {"--adam-eps", {"--adam-eps=1e-3"}},
    {"--sgd-momentum", {"--sgd-momentum=0.5"}},
    {"--clip-grad", {"--clip-grad=1.0"}},
    {"--skip-bad-steps", {"--skip-bad-steps"}},
    {"--shard-optimizer", {"--shard-optimizer"}},
    {"--peer-copy", {"--peer-copy=1", "--shard-optimizer"}},
    {"--data-dir", {"--data-dir=/elsewhere"}},
    {"--data", {"--data=a:0.7,b:0.3"}},
    {"--data-split", {"--data-split=9,1"}},
    {"--bad-samples", {"--bad-samples=skip"}},
    {"--tokenizer", {"--tokenizer=t.json"}},
    {"--samples", {"--samples=1000"}},
    {"--device", {"--device=cpu"}},
    {"--cuda-graphs", {"--cuda-graphs=on"}},
    {"--data-parallel", {"--data-parallel=off"}},
    {"--memory-limit", {"--memory-limit=2GiB"}},
    {"--cache-dir", {"--cache-dir=/elsewhere"}},
    {"--no-cache", {"--no-cache"}},
    {"--checkpoint-dir", {"--checkpoint-dir=c"}},
    {"--save-interval", {"--save-interval=5", "--checkpoint-dir=c"}},
    {"--async-save", {"--async-save", "--save-interval=5", "--checkpoint-dir=c"}},
    {"--keep", {"--keep=5", "--checkpoint-dir=c"}},
    {"--resume", {"--resume=must", "--checkpoint-dir=c"}},
    {"--log-style", {"--log-style=pytorch"}},
    {"--log-interval", {"--log-interval=5", "--metrics=m"}},
    {"--json", {"--json=j"}},
    {"--metrics", {"--metrics=m"}},
    {"--tensorboard", {"--tensorboard=t"}},
    {"--profile", {"--profile=p"}},
    {"--profile-steps", {"--profile-steps=3", "--profile=p"}},
    {"--dump-parameters", {"--dump-parameters=p"}},
    {"--min-throughput", {"--min-throughput=1"}},
    {"--max-throughput", {"--max-throughput=1e9"}},
};

Options options_of(const Words& words, const std::string& model) {
    const Parsed parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    Options options = parsed.options.value_or(Options{});
    return completed(options, *find_model(options.model.empty() ? model : options.model));
}

// What a checkpoint of the training has in common with others of it, on a rank that trains alone.
Continuation continuation(Options options) {
    EXPECT_TRUE(choose_documents(options));
    const ModelInfo& info = *find_model(options.model);
    Dataset data = pattern_set();
    take_samples(data, options.data);
    const auto model = info.make(options.shape);
    const auto schedule = make_schedule(options.training, data.train.count, 1);
    EXPECT_TRUE(schedule) << schedule.error().message;
    return continuation_of(info, *model, data, options.training, *schedule, 1);
}

bool can_go_on(const Options& before, const Options& now) {
    Manifest manifest;
    manifest.training = continuation(before).training;
    manifest.progress.step = 1;
    return check_fits(manifest, continuation(now)).has_value();
}

struct OptionUses : ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Of, OptionUses, ::testing::ValuesIn([] {
                             Options options;
                             std::vector<std::string> names;
                             const OptionList list = training_options(options);
                             for (const OptionRow& row : list.rows()) names.push_back(row.name());
                             return names;
                         }()),
                         [](const auto& one) {
                             std::string name = one.param.substr(2);
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST_P(OptionUses, AreAsItsRowSays) {
    Options scratch;
    const OptionList list = training_options(scratch);
    const auto row = std::find_if(list.rows().begin(), list.rows().end(),
                                  [](const OptionRow& one) { return one.name() == GetParam(); });
    const auto tried = kTried.find(GetParam());
    ASSERT_NE(tried, kTried.end()) << "a new option: give it another value in kTried";
    const std::string model = find_model(row->only_of) != nullptr ? row->only_of : "ffn";
    const Options usual = options_of({}, model), other = options_of(tried->second, model);
    EXPECT_EQ(can_go_on(usual, other), row->uses.resumes);
    const bool is_of_plan = row->uses.plan != PlanUse::none;
    EXPECT_EQ(values_of_plan(usual) != values_of_plan(other), is_of_plan);
    const bool is_alike = row->uses.may_differ == nullptr;
    // Whether there is a --metrics or --tensorboard decides the interval of the log, which is alike.
    if (GetParam() == "--metrics" || GetParam() == "--tensorboard") return;
    EXPECT_EQ(values_alike(usual) != values_alike(other), is_alike);
}

// Whatever way it is said.
TEST(OptionUses, AValueThatIsTheDefaultMakesNoDifference) {
    for (const Words& words :
         {Words{"--batch-size=64"}, Words{"--lr=0.001", "--optimizer=adamw"}, Words{"--epochs=5"},
          Words{"--precision=fp32"}, Words{"--log-interval=7"}, Words{"--accumulate", "1"}}) {
        EXPECT_EQ(values_alike(options_of(words, "ffn")), values_alike(options_of({}, "ffn"))) << words[0];
        EXPECT_EQ(values_of_plan(options_of(words, "ffn")), values_of_plan(options_of({}, "ffn")))
            << words[0];
    }
    EXPECT_EQ(values_alike(options_of({"--gpt-size=10M"}, "gpt")),
              values_alike(options_of({"--num-layers=6"}, "gpt")));
}

// A plan holds for any norm or part, if it holds for one.
TEST(OptionUses, OfAPlanSomeCountOnlyWhetherTheyAreGiven) {
    const auto plan = [](const char* word) { return values_of_plan(options_of({word}, "gpt")); };
    EXPECT_EQ(plan("--clip-grad=1"), plan("--clip-grad=2"));
    EXPECT_EQ(plan("--hidden-dropout=0.1"), plan("--hidden-dropout=0.2"));
    EXPECT_EQ(plan("--hidden-dropout=0"), plan("--precision=fp32"));
    EXPECT_NE(plan("--batch-size=1"), plan("--batch-size=2"));
}

TEST(OptionUses, WhatMayDifferHasAReason) {
    Options options;
    const OptionList list = training_options(options);
    for (const OptionRow& row : list.rows()) {
        const std::string why = row.uses.may_differ != nullptr ? row.uses.may_differ : "it must be alike";
        EXPECT_GT(why.size(), 10u) << row.name();
    }
}

}  // namespace
}  // namespace dp::trainer
