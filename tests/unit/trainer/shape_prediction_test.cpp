// SPDX-License-Identifier: Apache-2.0
//
// `trainer plan`: which divisions there are, what a step takes, and what is printed of them.
#include "trainer/commands/shape_prediction.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "trainer/commands/options.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/memory/estimate.hpp"

namespace dp::trainer {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

GptShape some_shape() {
    GptShape shape{4, 16, 4, 8, 29};
    return shape;
}

Hardware some_hardware() {
    Hardware hardware;
    hardware.ranks_per_node = 4;
    hardware.memory_rate = 1e9;
    hardware.node_rate = 1e8;
    hardware.network_rate = 1e6;
    return hardware;
}

TEST(DivisionsOf, AreAllThatDivideHeadsLayersRanksAndSamples) {
    const auto all = divisions_of(some_shape(), 8, 16);
    EXPECT_THAT(all, Contains(Division{{2, 2, 2}, 4, 2}));
    EXPECT_THAT(all, Contains(Division{{1, 8, 1}, 2, 1}));
    EXPECT_THAT(all, Contains(Division{{4, 1, 2}, 1, 16}));
    EXPECT_THAT(all, Not(Contains(Division{{8, 1, 1}, 16, 1}))) << "there are 4 heads";
    EXPECT_THAT(all, Not(Contains(Division{{1, 1, 8}, 2, 8}))) << "there are 4 layers";
    for (const auto& [ranks, batch, micro_batches] : all) {
        EXPECT_EQ(ranks.tensor * ranks.data * ranks.pipeline, 8u);
        EXPECT_EQ(batch * micro_batches * ranks.data, 16);
        EXPECT_GE(micro_batches, ranks.pipeline);
    }
    EXPECT_THAT(divisions_of(some_shape(), 5, 16), ::testing::IsEmpty())
        << "16 samples are not five equal parts, nor 4 layers five stages";
}

TEST(PredictStep, IsTheSumOfItsParts) {
    const PassSeconds passes{0.01, 0.02};
    const auto predict = [&](const Division& division) {
        return predict_step(division, some_shape(), passes, some_hardware(), 1000, 4);
    };
    const StepSeconds alone = predict({{1, 1, 1}, 3, 2});
    EXPECT_DOUBLE_EQ(alone.compute, 2 * 3 * (4 * 0.01 + 0.02));
    EXPECT_DOUBLE_EQ(alone.optimizer, 7 * 4000 / 1e9);
    EXPECT_DOUBLE_EQ(alone.total(), alone.compute + alone.optimizer);

    // 4 layers sum 4 times and the ends twice, 3 samples of 8 tokens of 16 numbers; two ranks send as much as that is.
    const StepSeconds tensor = predict({{2, 1, 1}, 3, 2});
    EXPECT_DOUBLE_EQ(tensor.compute, alone.compute / 2);
    EXPECT_DOUBLE_EQ(tensor.tensor, 2 * 18 * (3 * 8 * 16 * 4) / 1e8);

    // Half of a sum scatters and half of it gathers; each layer gathers two inputs again in its backward pass. Stages send their part.
    GptShape of_tokens = some_shape();
    of_tokens.layout.divides_tokens = true;
    const auto predict_tokens = [&](const Division& division) {
        return predict_step(division, of_tokens, passes, some_hardware(), 1000, 4);
    };
    EXPECT_DOUBLE_EQ(predict_tokens({{2, 1, 1}, 3, 2}).tensor, 2 * 22 * (3 * 8 * 16 * 4) / 1e8);
    EXPECT_DOUBLE_EQ(predict_tokens({{2, 1, 2}, 3, 2}).messages, predict({{2, 1, 2}, 3, 2}).messages / 2);

    const StepSeconds data = predict({{1, 4, 1}, 3, 2});
    EXPECT_DOUBLE_EQ(data.gradients, 1.5 * 4000 / 1e8);
    EXPECT_DOUBLE_EQ(predict({{1, 8, 1}, 3, 2}).gradients, 1.75 * 4000 / 1e6) << "over the network";
    EXPECT_DOUBLE_EQ(predict({{4, 2, 1}, 3, 2}).gradients, 4000 / 1e6) << "the ranks of a layer fill a node";
}

TEST(PredictStep, HasTheBubbleOfThePaper) {
    for (const auto& [stages, micro_batches] : {std::pair{2, 8}, {4, 4}, {2, 2}}) {
        const StepSeconds step = predict_step({{1, 1, static_cast<std::uint32_t>(stages)}, 2, micro_batches},
                                              some_shape(), {0.01, 0}, some_hardware(), 0, 4);
        EXPECT_NEAR(step.bubble / step.total(), bubble_of(stages, micro_batches), 1e-12);
    }
}

TEST(PredictStep, CountsTheLayersOfTheSlowestStage) {
    GptShape shape = some_shape();
    const PassSeconds passes{0.01, 0.02};
    const auto predict = [&] {
        return predict_step({{1, 1, 2}, 1, 8}, shape, passes, some_hardware(), 0, 4);
    };
    const auto sent = [&] { return 2.0 * 8 * 16 * 4 / 1e8; };  // of a micro-batch
    shape.layout.split.layers = {2, 2};
    EXPECT_DOUBLE_EQ(predict().compute, 8 * (2 * 0.01 + 0.02)) << "the last one";
    EXPECT_NEAR(predict().bubble, 0.02 + sent(), 1e-12) << "until it begins, and after its end";
    shape.layout.split.layers = {3, 1};
    EXPECT_DOUBLE_EQ(predict().compute, 8 * 3 * 0.01) << "the first one, as long as the last";
    shape.vocabulary = 400;  // the head costs two layers
    shape.layout.split.layers = {};
    const double balanced = predict().total();
    shape.layout.split.is_even = true;
    EXPECT_GT(predict().total(), 1.2 * balanced);
}

TEST(PredictStep, KnowsTheInterleavedSchedule) {
    GptShape shape = some_shape();
    shape.layout.chunks = 2;
    const Division two{{1, 1, 2}, 2, 8};
    const auto predict = [&](PipelineSchedule schedule, const Hardware& hardware) {
        return predict_step(two, shape, {0.01, 0}, hardware, 0, 4, schedule);
    };
    Hardware fast = some_hardware();
    fast.node_rate = 1e30;
    const StepSeconds step = predict(PipelineSchedule::interleaved, fast);
    EXPECT_NEAR(step.bubble / step.total(), bubble_of(2, 8, 2), 1e-12);
    const double sent = predict(PipelineSchedule::interleaved, some_hardware()).messages;
    shape.layout.chunks = 1;
    EXPECT_DOUBLE_EQ(sent, 2 * predict(PipelineSchedule::one_forward_one_backward, some_hardware()).messages);
    EXPECT_THAT(divisions_of(some_shape(), 2, 16, 2), Contains(Division{{1, 1, 2}, 2, 8}));
    EXPECT_THAT(divisions_of(some_shape(), 4, 16, 2), Not(Contains(Division{{1, 1, 4}, 2, 8})))
        << "4 layers are not 8 chunks";
    EXPECT_THAT(divisions_of(some_shape(), 2, 6, 2), Not(Contains(Division{{1, 1, 2}, 2, 3})))
        << "3 micro-batches are not a multiple of 2";
    EXPECT_THAT(divisions_of(some_shape(), 2, 6, 1), Contains(Division{{1, 1, 2}, 2, 3}));
}

TEST(PassesOnPaper, AreThoseOfTheFormula) {
    GptShape shape{96, 12288, 96, 2048, 51200};  // GPT-3
    const PassSeconds passes = passes_on_paper(shape);
    // 96 B s l h² (1 + s / 6h + V / 16 l h) with recomputation is 4 passes' worth; without, 3 of 4 (Narayanan et al. 2021, equation 3),
    // and of attention's scores only the causal half counts here.
    const double c = 12288, t = 2048,
                 flops = 72 * t * 96 * c * c * (1 + t / (12 * c) + 51200 / (12 * 96 * c));
    EXPECT_NEAR((96 * passes.layer + passes.ends) * 0.45 * 989e12 / flops, 1, 1e-9);
    EXPECT_FALSE(hardware_named("here"));
    EXPECT_EQ(hardware_named("h100")->ranks_per_node, 8);
}

Result<std::string> planned(std::vector<std::string> words) {
    words.insert(words.begin(), "plan");
    const Parsed parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    ::testing::internal::CaptureStdout();
    const auto done = plan(*parsed.options);
    std::fflush(stdout);
    const std::string printed = ::testing::internal::GetCapturedStdout();
    if (!done) return tl::unexpected(done.error());
    return printed;
}

nlohmann::json last_line_of(const std::string& text) {
    return nlohmann::json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
}

TEST(PlanCommand, ShowsTheFastestFirst) {
    const auto text =
        planned({"--num-layers=2", "--hidden-size=32", "--num-attention-heads=4", "--seq-length=16",
                 "--vocab-size=64", "--batch-size=2", "--ranks=4", "--ranks-per-node=2"});
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_THAT(*text, HasSubstr("gpt on 4 ranks (cpu"));
    EXPECT_THAT(*text, HasSubstr("--tensor-parallel="));
    std::istringstream lines(*text);
    double before = 0;
    int rows = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::int64_t tensor, stages, data, batch, accumulate;
        double memory, seconds;
        std::string unit;
        if (!(words >> tensor >> stages >> data >> batch >> accumulate >> memory >> unit >> seconds))
            continue;
        EXPECT_EQ(tensor * stages * data, 4);
        EXPECT_GE(seconds, before);
        before = seconds;
        ++rows;
    }
    EXPECT_GT(rows, 3);
    const auto best = last_line_of(*text);
    EXPECT_EQ(best["plan"], "gpt");
    EXPECT_GT(best["samples_per_second"], 0);
    EXPECT_LT(best["step_seconds"].get<double>(), before);
    ASSERT_EQ(best["ways"].size(), static_cast<std::size_t>(rows));
    EXPECT_EQ(best["ways"][0]["step_seconds"], best["step_seconds"]);
    EXPECT_EQ(best["ways"][0]["tensor_parallel"], best["tensor_parallel"]);
}

TEST(PlanCommand, KnowsThatTokensAreDividedToo) {
    std::vector<std::string> words{"--num-layers=32",   "--hidden-size=4096", "--num-attention-heads=32",
                                   "--seq-length=2048", "--batch-size=1",     "--ranks=64",
                                   "--hardware=h100"};
    const auto without = planned(words);
    words.push_back("--sequence-parallel");
    const auto with = planned(words);
    ASSERT_TRUE(with) << with.error().message;
    ASSERT_GT(last_line_of(*with)["tensor_parallel"].get<int>(), 1);
    EXPECT_TRUE(last_line_of(*with)["sequence_parallel"].get<bool>());
    EXPECT_FALSE(last_line_of(*without)["sequence_parallel"].get<bool>());
    EXPECT_THAT(*with, HasSubstr(" --sequence-parallel --pipeline-parallel="));
    words[3] = "--seq-length=2047";  // only whole layers have as many tokens on each rank
    const auto odd = planned(words);
    ASSERT_TRUE(odd) << odd.error().message;
    EXPECT_EQ(last_line_of(*odd)["tensor_parallel"], 1);
}

// A model that no GPU of 80 GB trains alone.
TEST(PlanCommand, DividesWhatDoesNotFit) {
    const std::vector<std::string> large{"--num-layers=32",          "--hidden-size=4096",
                                         "--num-attention-heads=32", "--seq-length=2048",
                                         "--batch-size=1",           "--hardware=h100"};
    auto words = large;
    words.insert(words.end(), {"--ranks=64"});
    const auto text = planned(words);
    ASSERT_TRUE(text) << text.error().message;
    const auto best = last_line_of(*text);
    EXPECT_GT(best["tensor_parallel"].get<int>() * best["pipeline_parallel"].get<int>(), 1);
    EXPECT_LE(best["memory_bytes"], 72e9);
    words = large;
    words.insert(words.end(), {"--ranks=1"});
    const auto refused = planned(words);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("no way to divide gpt among --ranks 1 fits 67.1 GiB a rank"));
}

TEST(PlanCommand, KnowsTheScheduleAndTheSplit) {
    std::vector<std::string> words{"--num-layers=48",   "--hidden-size=8192",  "--num-attention-heads=64",
                                   "--seq-length=2048", "--batch-size=2",      "--ranks=64",
                                   "--hardware=h100",   "--memory-limit=60GiB"};
    const auto plain = planned(words);
    ASSERT_TRUE(plain) << plain.error().message;
    ASSERT_GT(last_line_of(*plain)["pipeline_parallel"].get<int>(), 1);
    words.push_back("--pipeline-split=even");
    const auto even = planned(words);
    ASSERT_TRUE(even) << even.error().message;
    EXPECT_THAT(*even, HasSubstr(" --pipeline-split=even "));
    words.back() = "--pipeline-schedule=interleaved";
    const auto interleaved = planned(words);
    ASSERT_TRUE(interleaved) << interleaved.error().message;
    EXPECT_THAT(*interleaved, HasSubstr(" --pipeline-schedule=interleaved --virtual-stages=2 "));
    const auto of = [&](const Result<std::string>& text, int stages) {
        const auto all = last_line_of(*text);
        for (const auto& way : all["ways"])
            if (way["pipeline_parallel"] == stages) return way;
        return nlohmann::json();
    };
    const int stages = last_line_of(*interleaved)["pipeline_parallel"].get<int>();
    EXPECT_EQ(of(interleaved, stages)["pipeline_layers"].size(), static_cast<std::size_t>(2 * stages));
    for (const auto& [given, complaint] :
         {std::pair{"--virtual-stages=2", "--virtual-stages needs --pipeline-schedule=interleaved"},
          {"--pipeline-split=40,8", "--pipeline-split: trainer plan divides the layers among any number"}}) {
        words.back() = given;
        const auto refused = planned(words);
        ASSERT_FALSE(refused) << given;
        EXPECT_THAT(refused.error().message, HasSubstr(complaint));
    }
}

TEST(PlanCommand, LeavesOutWhatTheTrainerRefuses) {
    const std::vector<std::string> small{"--num-layers=2",  "--hidden-size=32", "--num-attention-heads=4",
                                         "--seq-length=16", "--vocab-size=64",  "--ranks=2"};
    auto words = small;
    words.push_back("--lora-rank=2");
    const auto adapters = planned(words);
    ASSERT_TRUE(adapters) << adapters.error().message;
    EXPECT_EQ(last_line_of(*adapters)["data_parallel"], 2);
    words = small;
    words.push_back("--freeze=wte,wpe,h.0");  // all of a first stage
    const auto frozen = planned(words);
    ASSERT_TRUE(frozen) << frozen.error().message;
    EXPECT_THAT(*frozen, Not(HasSubstr("     1        2     1 ")));
}

TEST(PlanCommand, RefusesOtherModels) {
    EXPECT_EQ(planned({"--model=cnn"}).error().message,
              "cnn is not divided among ranks, so there is nothing to plan; give --model=gpt");
}

}  // namespace
}  // namespace dp::trainer
