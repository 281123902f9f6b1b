// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/parallel_choice.hpp"

#include <gtest/gtest.h>

#include "trainer/commands/preparation.hpp"

namespace dp::trainer {
namespace {

Result<ModelParallel> choose(std::vector<std::string> words, std::int64_t ranks, int of_step = 1,
                             int stages = 1) {
    const auto parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    const ModelInfo& info = *find_model(parsed.options->model);
    LaunchContext here;
    here.tensor_size = of_step;
    here.pipeline_size = stages;
    return choose_parallel(completed(*parsed.options, info), info, here, ranks);
}

std::string refusal(std::vector<std::string> words, std::int64_t ranks, int of_step = 1, int stages = 1) {
    const auto chosen = choose(std::move(words), ranks, of_step, stages);
    return chosen ? "" : chosen.error().message;
}

TEST(ParallelChoice, IsTheOptionsOrTheSteps) {
    const std::vector<std::string> gpt{"--model=gpt"}, cnn{"--model=cnn"};
    EXPECT_EQ(*choose(gpt, 4), (ModelParallel{1, 4, 1}));
    EXPECT_EQ(*choose(cnn, 3), (ModelParallel{1, 3, 1}));
    EXPECT_EQ(*choose({"--model=gpt", "--tensor-parallel=2"}, 4), (ModelParallel{2, 2, 1}));
    EXPECT_EQ(*choose({"--model=gpt", "--tensor-model-parallel-size=6"}, 6), (ModelParallel{6, 1, 1}));
    EXPECT_EQ(*choose(gpt, 6, 3), (ModelParallel{3, 2, 1}));
    EXPECT_EQ(*choose({"--model=gpt", "--tensor-parallel=2"}, 4, 2), (ModelParallel{2, 2, 1}));
    EXPECT_EQ(*choose(gpt, 8, 2, 2), (ModelParallel{2, 2, 2}));
    EXPECT_EQ(*choose({"--model=gpt", "--pipeline-model-parallel-size=3"}, 6), (ModelParallel{1, 2, 3}));
    EXPECT_EQ(*choose({"--model=gpt", "--accumulate=2"}, 2, 1, 2), (ModelParallel{1, 1, 2}));
    EXPECT_EQ(*choose({"--model=gpt", "--bf16", "--device=cuda", "--tensor-parallel=2"}, 4, 1, 2),
              (ModelParallel{2, 1, 2}));
    // A rank of a step that trains alone (--data-parallel=off).
    EXPECT_EQ(*choose(gpt, 1, 2, 2), (ModelParallel{1, 1, 1}));
}

TEST(EvenlySplit, AreAllStagesWhereThatIsAnotherSplit) {
    const ModelInfo& info = *find_model("gpt");
    ModelShape shape;
    shape.gpt = {4, 16, 2, 8, 300};
    Settings training;
    training.accumulate = 4;
    const auto split = [&](std::int64_t stages) {
        shape.gpt.layout = layout_of({1, 1, static_cast<std::uint32_t>(stages)}, stages - 1, training);
        return evenly_split(info, shape, training);
    };
    EXPECT_TRUE(split(1).empty());
    const auto two = split(2);  // the head costs more than a layer
    ASSERT_EQ(two.size(), 2u);
    EXPECT_EQ(two[0]->parameters().count() - two[1]->parameters().count(), 8 * 16 - 2 * 16)
        << "wpe and ln_f; each has wte";
    EXPECT_GT(two[0]->activations_per_sample(), two[1]->activations_per_sample())
        << "of two micro-batches at a time";
    EXPECT_TRUE(split(4).empty()) << "there is no other way";
    training.pipeline_split.layers = {2, 2};
    EXPECT_TRUE(split(2).empty());
    training.pipeline_split.layers = {1, 3};
    EXPECT_EQ(split(2).size(), 2u);
    shape.freeze = {"wte", "wpe", "h.0", "h.1"};
    EXPECT_TRUE(split(2).empty()) << "its first stage would learn nothing";
}

TEST(ParallelChoice, RefusesWhatCannotBeAndSaysWhatCan) {
    const std::string four = "--tensor-parallel=4", two = "--tensor-parallel=2", gpt = "--model=gpt";
    EXPECT_EQ(refusal({gpt, four}, 4),
              "--tensor-parallel 4 does not divide --num-attention-heads 6; give 1 or 2");
    EXPECT_EQ(refusal({gpt}, 4, 4), "--dp-tensor=4 does not divide --num-attention-heads 6; give 1 or 2");
    EXPECT_EQ(
        refusal({gpt, four}, 6),
        "6 ranks cannot be divided by --tensor-parallel 4; give 1, 2, 3 or 6, or a multiple of 4 ranks");
    EXPECT_EQ(refusal({gpt, two}, 1),
              "1 rank cannot be divided by --tensor-parallel 2; give 1, or a multiple of 2 ranks");
    EXPECT_EQ(refusal({gpt, four}, 4, 2),
              "--tensor-parallel 4, but the step has --dp-tensor=2; give the same, or leave one out");
    EXPECT_EQ(refusal({"--model=cnn"}, 2, 2),
              "cnn is not divided among ranks; leave --dp-tensor=2 out, or give --model=gpt");
    const std::string tokens = "--sequence-parallel";
    const std::string none_divide =
        "--sequence-parallel divides tokens among the ranks that divide each layer, and none do; give "
        "--tensor-parallel 2 or more, or leave it out";
    EXPECT_EQ(refusal({gpt, tokens}, 4), none_divide);
    EXPECT_EQ(refusal({gpt, tokens}, 1, 2), none_divide) << "a rank of a step that trains alone";
    EXPECT_EQ(refusal({gpt, tokens, "--pipeline-parallel=2", "--accumulate=2"}, 4), none_divide);
    EXPECT_EQ(
        refusal({gpt, tokens, two, "--seq-length=9"}, 2),
        "--sequence-parallel: --seq-length 9 is not a multiple of --tensor-parallel 2; give 8 or 10, or "
        "leave it out");
    EXPECT_EQ(
        refusal({gpt, tokens, "--seq-length=2"}, 3, 3),
        "--sequence-parallel: --seq-length 2 is not a multiple of --dp-tensor=3; give 3, or leave it out");
    EXPECT_EQ(refusal({gpt, tokens, two, "--seq-length=10"}, 2), "");
    EXPECT_EQ(refusal({gpt, two, "--seq-length=9"}, 2), "");
    const std::string stages = "--pipeline-parallel=4";
    EXPECT_EQ(refusal({gpt, stages, "--num-layers=3"}, 4),
              "--pipeline-parallel 4 is more than --num-layers 3; give 1 or 2");
    EXPECT_EQ(
        refusal({gpt, stages}, 6),
        "6 parts of the ranks cannot be divided by --pipeline-parallel 4; give 1, 2, 3 or 6, or more ranks");
    EXPECT_EQ(refusal({gpt}, 2, 2, 2),
              "1 part of the ranks cannot be divided by --dp-pipeline=2; give 1, or more ranks");
    EXPECT_EQ(refusal({gpt, "--accumulate=3"}, 4, 1, 4),
              "--dp-pipeline=4 needs at least 4 micro-batches a step, and --accumulate is 3; give "
              "--accumulate 4 or more, "
              "each of --batch-size samples");
    const std::string interleaved = "--pipeline-schedule=interleaved";
    EXPECT_EQ(refusal({gpt, "--virtual-stages=2"}, 2, 1, 2),
              "--virtual-stages needs --pipeline-schedule=interleaved; give both or neither");
    EXPECT_EQ(refusal({gpt, interleaved, "--virtual-stages=4"}, 2, 1, 2),
              "--dp-pipeline=2 x 4 virtual stages is 8, more than --num-layers 6; give "
              "--virtual-stages 3");
    EXPECT_EQ(refusal({gpt, interleaved}, 4, 1, 4),
              "--dp-pipeline=4 x 2 virtual stages is 8, more than --num-layers 6; give "
              "--pipeline-schedule=1f1b");
    EXPECT_EQ(
        refusal({gpt, interleaved, "--accumulate=5"}, 2, 1, 2),
        "--pipeline-schedule=interleaved needs a multiple of 2 micro-batches, and --accumulate is 5; give "
        "--accumulate 4 or 6");
    const std::string of_stages = "--pipeline-parallel=2";
    EXPECT_EQ(refusal({gpt, of_stages, "--accumulate=2", "--pipeline-split=4,3"}, 2),
              "--pipeline-split 4,3 has 7 layers, and --num-layers is 6; give 2 numbers with the sum 6, such "
              "as 3,3");
    EXPECT_EQ(refusal({gpt, "--pipeline-split=2,2,2"}, 2, 1, 2),
              "--pipeline-split 2,2,2 has 3 stages, and --dp-pipeline=2 makes 2; give 2 numbers with the sum "
              "6, such as 3,3");
    EXPECT_EQ(
        refusal({gpt, of_stages, interleaved, "--pipeline-split=3,3"}, 2),
        "--pipeline-split 3,3 has 2 chunks, and --pipeline-parallel 2 x 2 virtual stages make 4; give 4 "
        "numbers with the sum 6, such as 1,2,1,2");
    EXPECT_EQ(refusal({gpt, of_stages, interleaved, "--pipeline-split=2,2,1,1"}, 2), "");
    EXPECT_EQ(refusal({gpt, of_stages, "--pipeline-split=5,1"}, 2), "");
    EXPECT_EQ(refusal({gpt, of_stages, "--pipeline-split=even"}, 2), "");
    EXPECT_EQ(refusal({gpt, two, "--pipeline-split=even"}, 2), "");
    EXPECT_EQ(refusal({gpt, two, "--pipeline-split=6"}, 2),
              "--pipeline-split with numbers divides layers among the stages of a pipeline, and there are "
              "none; give "
              "--pipeline-parallel 2 or more, or leave it out");
    EXPECT_EQ(refusal({gpt, stages}, 4, 1, 2),
              "--pipeline-parallel 4, but the step has --dp-pipeline=2; give the same, or leave one out");
    EXPECT_EQ(refusal({"--model=cnn"}, 2, 1, 2),
              "cnn is not divided among ranks; leave --dp-pipeline=2 out, or give --model=gpt");
    EXPECT_EQ(refusal({gpt, two, "--lora-rank=8"}, 2),
              "--tensor-parallel 2 does not divide adapters; leave it or --lora-rank out");
}

TEST(ParallelChoice, PeerCopyOfADividedModelIsSaidToDoNothing) {
    const auto line = [](std::vector<std::string> words, const ModelParallel& parallel) {
        words.insert(words.begin(), {"--model=gpt", "--shard-optimizer"});
        return peer_copy_without_effect(*parse_options(words).options, parallel);
    };
    constexpr const char* kLine =
        "--peer-copy does nothing: a part of a divided model dies with its rank, and the training begins "
        "again "
        "from its checkpoint; leave it out";
    EXPECT_EQ(line({"--peer-copy=1"}, {2, 2, 1}), kLine);
    EXPECT_EQ(line({"--peer-copy=1"}, {1, 2, 2}), kLine);
    EXPECT_EQ(line({"--peer-copy=0"}, {2, 2, 1}), std::nullopt);
    EXPECT_EQ(line({}, {2, 2, 1}), std::nullopt);
    EXPECT_EQ(line({"--peer-copy=1"}, {1, 4, 1}), std::nullopt);
}

TEST(ParallelChoice, LayoutFollowsTheOrderOfThePlugin) {
    const ModelParallel parallel{2, 3, 2};
    Settings settings;
    settings.accumulate = 8;
    for (std::int64_t rank = 0; rank < 12; ++rank) {
        const Layout layout = layout_of(parallel, rank, settings);
        EXPECT_EQ(layout.tensor_rank, rank % 2);
        EXPECT_EQ(layout.tensor_ranks, 2);
        EXPECT_EQ(layout.stage, rank / 6);
        EXPECT_EQ(layout.stages, 2);
        EXPECT_EQ(layout.slots, rank < 6 ? 2 : 1);
    }
    settings.pipeline_schedule = PipelineSchedule::gpipe;
    EXPECT_EQ(layout_of(parallel, 11, settings).slots, 8);
    EXPECT_EQ(layout_of({2, 6, 1}, 11, settings).slots, 1);
    settings.pipeline_schedule = PipelineSchedule::interleaved;
    settings.virtual_stages = 3;
    EXPECT_EQ(layout_of(parallel, 11, settings).chunks, 3);
    EXPECT_EQ(layout_of(parallel, 0, settings).slots, 7);
    EXPECT_EQ(layout_of({2, 6, 1}, 11, settings).chunks, 1) << "without stages";
}

TEST(Layout, GivesAStageARunOfLayersBehindEachOfTheOthers) {
    Layout layout{0, 1, 1, 2};
    layout.chunks = 2;
    layout.chunk_layers = {1, 2, 3, 1};  // the second and the last of them are here
    EXPECT_EQ(layout.layers_of(0).first, 1);
    EXPECT_EQ(layout.layers_of(0).count, 2);
    EXPECT_EQ(layout.layers_of(1).first, 6);
    EXPECT_EQ(layout.most_layers(), 2);
    const std::vector<std::optional<std::int64_t>> chunks{{}, 0, 0, {}, {}, {}, 1};
    for (std::size_t layer = 0; layer < chunks.size(); ++layer)
        EXPECT_EQ(layout.chunk_with(static_cast<std::int64_t>(layer)), chunks[layer]) << layer;
    EXPECT_TRUE(layout.ends(1) && !layout.ends(0) && !layout.begins(0));
}

TEST(ParallelChoice, TokensAreDividedAmongTheRanksOfALayer) {
    Settings settings;
    EXPECT_EQ(layout_of({4, 1, 1}, 3, settings).own_of(12).count, 12);
    settings.sequence_parallel = true;
    const Layout layout = layout_of({4, 1, 1}, 3, settings);
    EXPECT_EQ(layout.token_parts(), 4);
    EXPECT_EQ(layout.own_of(12).first, 9);
    EXPECT_EQ(layout.own_of(12).count, 3);
    EXPECT_FALSE(layout_of({1, 4, 1}, 3, settings).divides_tokens);
}

TEST(ParallelChoice, DividesTheDefaultBatchForAPipeline) {
    struct Case {
        std::vector<std::string> words;
        std::uint32_t stages;
        std::int64_t batch, accumulate;
    };
    for (const auto& [words, stages, batch, accumulate] : {Case{{}, 1, 8, 1},
                                                           {{}, 2, 2, 4},
                                                           {{}, 3, 1, 8},
                                                           {{}, 4, 1, 8},
                                                           {{}, 6, 1, 8},
                                                           {{}, 12, 1, 12},
                                                           {{"--batch-size=4"}, 2, 4, 1},
                                                           {{"--pipeline-schedule=interleaved"}, 2, 2, 4},
                                                           {{"--pipeline-schedule=interleaved"}, 3, 1, 9},
                                                           {{"--gradient-accumulation-steps=3"}, 2, 8, 3}}) {
        std::vector<std::string> all{"--model=gpt"};
        all.insert(all.end(), words.begin(), words.end());
        Options options = completed(*parse_options(all).options, *find_model("gpt"));
        choose_micro_batches(options, {1, 1, stages});
        EXPECT_EQ(options.training.batch, batch) << stages;
        EXPECT_EQ(options.training.accumulate, accumulate) << stages;
    }
}

}  // namespace
}  // namespace dp::trainer
