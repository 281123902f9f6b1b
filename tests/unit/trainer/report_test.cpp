// SPDX-License-Identifier: Apache-2.0
//
// The summary's keys, which programs read, and the line of an epoch, which people read.
#include "trainer/reports/report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace dp::trainer {
namespace {

Outcome outcome() {
    Outcome done{};
    done.schedule = {117, 585, 5, 512};
    done.last = {5, 0.25, 0.5, 0.875, 2.0, 29952.0};
    done.train_seconds = 10;
    done.samples_per_second = 29952;
    done.parameters = {1, 2, 3};
    done.parameters_hash = 0xABC;
    done.equal_on_all_ranks = true;
    return done;
}

RunFacts facts() {
    RunFacts facts{"ffn", "cpu", "gloo", 8, 1, 0.5};
    facts.device_name = "cpu, 2 threads";
    facts.threads = 2;
    facts.nodes = 2;
    facts.precision = Precision::bf16;
    facts.deterministic = true;
    facts.memory_peak = 4096;
    return facts;
}

TEST(ResumeLine, SaysAlsoWherePrecisionIsAnotherAndWhatHadStoppedIt) {
    const ResumeReport same{10, "run/step-000000010", "bf16", "bf16"},
        other{10, "run/step-000000010", "bf16", "fp32"},
        stopped{10, "run/step-000000010", "bf16", "bf16", "SIGTERM"},
        normed{10, "run/step-000000010", "bf16", "bf16", "", 8, 8},
        normed_otherwise{10, "run/step-000000010", "bf16", "bf16", "", 8, 16};
    EXPECT_EQ(resume_line(same, 30), "resuming from run/step-000000010: step 10 of 30");
    EXPECT_EQ(resume_line(other, 30),
              "resuming from run/step-000000010: step 10 of 30; in fp32 until here, in bf16 from now on");
    EXPECT_EQ(resume_line(stopped, 30),
              "resuming from run/step-000000010: step 10 of 30; SIGTERM stopped it there");
    EXPECT_EQ(resume_line(normed, 30), resume_line(same, 30));
    EXPECT_EQ(resume_line(normed_otherwise, 30),
              "resuming from run/step-000000010: step 10 of 30; batch norm saw 16 samples at once and sees 8 "
              "from now on, which changes the training a little (keep ranks x --batch-size)");
}

TEST(Summary, HasWhatProgramsLookFor) {
    const auto json = summary_of(facts(), outcome());
    EXPECT_EQ(
        json.dump(),
        R"({"model":"ffn","device":"cpu","device_name":"cpu, 2 threads","threads":2,"communicator":"gloo",)"
        R"("world_size":8,"nodes":2,"seed":1,"precision":"bf16","deterministic":true,"epochs":5,"steps":585,)"
        R"("global_batch_size":512,"final_loss":0.25,"test_loss":0.5,"test_accuracy":0.875,)"
        R"("samples_per_second":29952.0,"train_seconds":10.0,"startup_seconds":0.5,"memory_peak_bytes":4096,"parameters":3,)"
        R"("parameters_hash":"0000000000000abc","parameters_equal_on_all_ranks":true})");
}

TEST(Summary, SaysWhatBecameOfCheckpoints) {
    Outcome done = outcome();
    RunFacts facts{"ffn", "cpu", "gloo", 8, 1, 0.5};
    facts.has_checkpoints = true;
    EXPECT_EQ(summary_of(facts, done)["checkpoints_written"], 0);
    EXPECT_FALSE(summary_of(facts, done).contains("resumed_from_step"));
    done.resumed = 300;
    done.checkpoints = 2;
    EXPECT_EQ(summary_of(facts, done)["resumed_from_step"], 300);
    EXPECT_EQ(summary_of(facts, done)["checkpoints_written"], 2);
}

TEST(Summary, OfTextHasTokensASecond) {
    RunFacts text = facts();
    text.tokens_per_sample = 256;
    EXPECT_EQ(summary_of(text, outcome())["tokens_per_second"], 29952 * 256);
    EXPECT_FALSE(summary_of(facts(), outcome()).contains("tokens_per_second"));
}

TEST(Summary, HasNoAccuracyForModelsThatDoNotClassify) {
    Outcome done = outcome();
    done.last.test_accuracy.reset();
    EXPECT_FALSE(summary_of({"linear", "cpu", "single", 1, 1, 0.5}, done).contains("test_accuracy"));
}

TEST(Summary, TheManualPageHasEveryKeyAndNoOther) {
    std::ifstream file(DP_TEST_PACKAGING "/man/dp-trainer.1.in");
    std::string page(std::istreambuf_iterator<char>(file), {});
    page.erase(std::remove(page.begin(), page.end(), '\\'), page.end());
    const auto from = page.find(".SH THE SUMMARY");
    ASSERT_NE(from, std::string::npos);
    const std::string section = page.substr(from, page.find("\n.SH ", from + 1) - from);
    std::set<std::string> documented, printed;
    const std::regex key("\n\\.BR? ([a-z_]+)");
    for (std::sregex_iterator at(section.begin(), section.end(), key), end; at != end; ++at)
        documented.insert((*at)[1]);
    Outcome skipping = outcome();
    skipping.skipped = 1;
    skipping.resumed = 300;
    skipping.recovered.recoveries = 1;
    skipping.last.test_perplexity = 3;
    skipping.stopped_after = BestTest{0.5, 300, 2, 500};
    RunFacts saving = facts();
    saving.has_checkpoints = true;
    saving.tensor_parallel = saving.pipeline_parallel = 2;
    saving.sequence_parallel = true;
    saving.virtual_stages = 2;
    saving.pipeline_layers = {3, 3, 3, 1};
    skipping.bubble = 0.1;
    saving.tokens_per_sample = 256;
    const auto summary = summary_of(saving, skipping);
    for (const auto& item : summary.items()) printed.insert(item.key());
    EXPECT_EQ(documented, printed);
}

TEST(Throughput, IsWithinWhatWasAskedFor) {
    const Throughput images = throughput_of(395, 0);
    EXPECT_FALSE(throughput_problem(images, {}, {}));
    EXPECT_FALSE(throughput_problem(images, 395, 395));
    EXPECT_EQ(throughput_problem(images, 396, {}), "395.0 samples/s is less than --min-throughput 396");
    EXPECT_EQ(throughput_problem(images, {}, 394), "395.0 samples/s is more than --max-throughput 394");
}

// The SN30 tutorial's limits are of tokens; its own run of sequences of 1024 is below them.
TEST(Throughput, OfTextIsOfTokens) {
    EXPECT_FALSE(throughput_problem(throughput_of(400, 1024), 299000, 600000));
    EXPECT_EQ(throughput_problem(throughput_of(192467.31088 / 1024, 1024), 299000, 600000),
              "192467.3 tokens/s is less than --min-throughput 299000");
    EXPECT_EQ(throughput_problem(throughput_of(600, 1024), 299000, 600000),
              "614400.0 tokens/s is more than --max-throughput 600000");
}

TEST(EpochLine, SaysLossTestRateAndTime) {
    EXPECT_EQ(epoch_line(outcome().last, 5),
              "epoch 5/5  loss 0.25  test accuracy 87.50 %  29952 samples/s  2.00 s");
    EXPECT_EQ(epoch_line({2, 1e-6, 2e-7, {}, 0.5, 2000}, 50),
              "epoch 2/50  loss 1e-06  test loss 2e-07  2000 samples/s  0.50 s");
    EXPECT_EQ(epoch_line({2, 1e-6, 2e-7, {}, 0.5, 2000, 1}, 50),
              "epoch 2/50  loss 1e-06  test loss 2e-07  2000 samples/s  0.50 s  1 step skipped");
    EXPECT_EQ(epoch_line({1, 3.1, 3.2, {}, 0.5, 2000, 0, 24.5325}, 1),
              "epoch 1/1  loss 3.1  test loss 3.2, perplexity 24.53  2000 samples/s  0.50 s");
}

TEST(Report, TheLineOfATestHasItsStep) {
    EXPECT_EQ(test_line({{1, 200, 200}, 3.2, {}, 24.5325, 0.5}, 1000),
              "step 200/1000  test loss 3.2, perplexity 24.53  0.50 s");
    EXPECT_EQ(test_line({{1, 200, 200}, 3.2, 0.875, {}, 0.5}, 1000),
              "step 200/1000  test accuracy 87.50 %  0.50 s");
}

// What two steps and a line leave on standard error and on standard output.
std::pair<std::string, std::string> written(bool is_primary, bool terminal) {
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    Report report(is_primary, terminal);
    const Schedule schedule{100, 200, 2, 8};
    report.on_step(1, 1, schedule);
    report.on_step(1, 2, schedule);  // so soon that it is not drawn
    report.line("epoch 1/2");
    report.line("epoch 2/2");
    const std::string out = ::testing::internal::GetCapturedStdout();
    return {::testing::internal::GetCapturedStderr(), out};
}

TEST(Report, DrawsProgressOnATerminalAndTakesItAwayBeforeALine) {
    EXPECT_EQ(
        written(true, true),
        std::pair(std::string("\r\033[Kepoch 1/2  step 1/200  [                    ]   0 %  [00:00<?, ?it/s]"
                              "\r\033[K"),
                  std::string("epoch 1/2\nepoch 2/2\n")));
}

TEST(Report, DrawsNothingWhereThereIsNoTerminalAndNothingAtAllWhereAnotherRankSpeaks) {
    EXPECT_EQ(written(true, false), std::pair(std::string(), std::string("epoch 1/2\nepoch 2/2\n")));
    EXPECT_EQ(written(false, true), std::pair(std::string(), std::string()));
}

}  // namespace
}  // namespace dp::trainer
