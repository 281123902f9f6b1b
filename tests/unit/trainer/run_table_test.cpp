// SPDX-License-Identifier: Apache-2.0
//
// Tables from what runs have printed, with the tutorials' own numbers.
#include "trainer/reports/run_table.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Runs = std::vector<nlohmann::ordered_json>;

Runs found_in(const std::string& text, const std::string& name = "log") {
    std::istringstream stream(text);
    return find_runs(name, stream);
}

// A run of the Cyclone tutorial: 5 epochs of 60000 images, batch 16 a rank.
nlohmann::ordered_json cyclone(const std::string& name, const std::string& device, std::int64_t nodes,
                               std::int64_t ranks, double seconds) {
    const std::int64_t batch = 16 * ranks, steps = 60000 / batch * 5;
    const nlohmann::ordered_json summary{
        {"model", "cnn"},       {"device", device},
        {"nodes", nodes},       {"world_size", ranks},
        {"threads", 1},         {"global_batch_size", batch},
        {"steps", steps},       {"train_seconds", seconds},
        {"final_loss", 0.05},   {"samples_per_second", static_cast<double>(steps * batch) / seconds},
        {"test_accuracy", 0.99}};
    return found_in(summary.dump(), name).at(0);
}

const Runs kCyclone{cyclone("cpu", "cpu", 1, 1, 192.25), cyclone("gpu1", "cuda", 1, 1, 73.48),
                    cyclone("gpu2", "cuda", 1, 2, 42.06), cyclone("gpu4", "cuda", 2, 4, 25.61)};

TEST(RunTable, HasTheSpeedUpsOfTheCycloneTutorial) {
    const auto rows = compare_runs(kCyclone);
    ASSERT_EQ(rows.size(), 4u);
    for (const auto& row : rows) EXPECT_EQ(row["baseline"], "gpu1");
    EXPECT_NEAR(rows[0]["speed_up"].get<double>(), 0.382, 0.001);
    EXPECT_EQ(rows[1]["speed_up"], 1);
    EXPECT_NEAR(rows[2]["speed_up"].get<double>(), 1.747, 0.001);
    // The tutorial cuts off: it has 2.86. Its 60000 images make no whole number of steps of 64, too.
    EXPECT_NEAR(rows[3]["speed_up"].get<double>(), 73.48 / 25.61 * 59968 / 60000, 1e-9);
    EXPECT_NEAR(rows[3]["speed_up"].get<double>(), 2.869, 0.002);
    EXPECT_TRUE(rows[0]["efficiency"].is_null()) << "a CPU is no part of a GPU";
    EXPECT_NEAR(rows[3]["efficiency"].get<double>(), 0.717, 0.001);
}

TEST(RunTable, TheBaselineIsTheSmallestRunWhereverItStands) {
    Runs runs{kCyclone[3], kCyclone[2], kCyclone[1]};
    EXPECT_EQ(compare_runs(runs)[0]["baseline"], "gpu1");
    runs = {kCyclone[3], kCyclone[0]};
    EXPECT_EQ(compare_runs(runs)[0]["baseline"], "gpu4") << "what is not the CPU";
    runs = {kCyclone[0]};
    EXPECT_EQ(compare_runs(runs)[0]["baseline"], "cpu");
}

TEST(RunTable, RunsOfDifferentModelsAreNotCompared) {
    auto runs = kCyclone;
    runs[2]["model"] = "ffn";
    const auto rows = compare_runs(runs);
    EXPECT_EQ(rows[3]["run"], "gpu2");
    EXPECT_EQ(rows[3]["baseline"], "gpu2");
    EXPECT_EQ(rows[3]["speed_up"], 1);
}

// One node against two of the DLI tutorial: what counts is samples a second, not seconds.
TEST(RunTable, RunsOfDifferentLengthsAreComparedByTheirRate) {
    Runs runs{kCyclone[1], kCyclone[1]};
    runs[1]["run"] = "shorter";
    runs[1]["train_seconds"] = runs[0]["train_seconds"].get<double>() / 10;
    runs[1]["steps"] = runs[0]["steps"].get<int>() / 10;
    EXPECT_NEAR(compare_runs(runs)[1]["speed_up"].get<double>(), 1, 1e-9);
}

TEST(RunTable, InstancesAreAveragedAndNeverAddedUp) {
    // Each of them has the rate of all: 20480 samples in its time.
    const std::vector<std::pair<std::string, std::string>> kSn30{
        {"36.314290046691895", "563.9653143065"},    {"33.36756229400635", "613.7697389922524"},
        {"33.94625234603882", "603.3066563941279"},  {"32.309499979019165", "633.8692958200872"},
        {"31.418426036834717", "651.8467849404489"}, {"28.164129495620728", "727.1660927132315"},
        {"30.29698896408081", "675.9747651583616"},  {"25.332663536071777", "808.442427336472"}};
    std::string log = "Using /results/Unet2d.out for output\n";
    for (const auto& [seconds, rate] : kSn30)
        log += "inner train loop time : " + seconds +
               " for 10 epochs, number of global steps: 10, e2e samples_per_sec: " + rate + "\n";
    const auto runs = found_in(log);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0]["ranks"], 8);
    EXPECT_EQ(runs[0]["steps"], 10);
    EXPECT_NEAR(runs[0]["samples_per_second"].get<double>(), 659.79, 0.005);
    EXPECT_NEAR(runs[0]["train_seconds"].get<double>(), 31.394, 0.001);
}

// Of the Cyclone tutorial, with the dots where it leaves lines out.
TEST(RunTable, ReadsWhatPytorchsExamplesPrint) {
    const char* const kCpu =
        "Entering training loop...\nTrain Epoch: 1 [0/60000 (0%)]\t    Loss: 2.300653\n"
        "Train Epoch: 1 [1600/60000 (3%)]\tLoss: 0.546140\n.\n.\nTrain Epoch: 5 [57600/60000 (96%)]\tLoss: "
        "0.000070\n"
        "Train Epoch: 5 [59200/60000 (99%)]\tLoss: 0.000981\nExiting training loop...\nTraining time = "
        "192.2544162273407\n";
    const char* const kGpu =
        "Utilizing GPU\nEntering training loop...\nTrain Epoch: 5 [59200/60000 (99%)]\tLoss: 0.082046\n"
        "Exiting training loop...\nTraining time = 73.48071932792664\n";
    const char* const kNodes =
        "MASTER_ADDR: gpu06\nMASTER_PORT: 57049\nWORLD_SIZE: 4\nNODE_RANK: 0\n"
        "Rank 1 on Node 0: Initializing process group.\nRank 3 on Node 1: Initializing process group.\n"
        "Rank 2 on Node 1: Initializing process group.\nRank 0 on Node 0: Initializing process group.\n"
        "Entering training loop...\n.\nTrain Epoch: 5 [12800/60000 (85%)]\tLoss: 0.000021\n"
        "Train Epoch: 5 [14400/60000 (96%)]\tLoss: 0.000576\nExiting training loop...\nTraining time = "
        "25.612423181533813\n";
    Runs runs;
    for (const char* log : {kCpu, kGpu, kNodes}) {
        const auto found = found_in(log);
        ASSERT_EQ(found.size(), 1u) << log;
        runs.push_back(found[0]);
    }
    EXPECT_EQ(runs[0]["log"], "pytorch");
    EXPECT_EQ(runs[0]["ranks"], 1);
    EXPECT_EQ(runs[0]["final_loss"], 0.000981);
    EXPECT_EQ(runs[0]["train_seconds"], 192.2544162273407);
    EXPECT_NEAR(runs[0]["samples_per_second"].get<double>(), 5 * 60000 / 192.2544162273407, 1e-9);
    EXPECT_TRUE(runs[0]["steps"].is_null()) << "no line tells the batch";
    EXPECT_EQ(runs[1]["device"], "cuda");
    EXPECT_EQ(runs[2]["ranks"], 4);
    EXPECT_EQ(runs[2]["nodes"], 2);
    EXPECT_NEAR(compare_runs({runs[1], runs[2]})[1]["speed_up"].get<double>(), 73.48 / 25.61, 0.001)
        << "its table has 2.86";
    EXPECT_EQ(found_in(std::string(kGpu) + kGpu).size(), 2u) << "a job's output with two";
    EXPECT_TRUE(found_in("Training time = 12\n").empty()) << "of what?";
    EXPECT_TRUE(found_in("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.3\n").empty()) << "it has not ended";
    // Ours beside theirs, and compared with them: all of ours are of one model.
    runs.insert(runs.begin(), kCyclone[1]);
    const auto rows = compare_runs(runs);
    EXPECT_EQ(rows[0]["log"], "");
    EXPECT_EQ(rows[3]["baseline"], "gpu1");
    EXPECT_NEAR(rows[3]["speed_up"].get<double>(), 73.48 / 25.61, 0.001);
    EXPECT_THAT(text_table(rows), HasSubstr("AGAINST  LOG\n"));
}

// The DLI tutorial's line, and what stands before it in its log.
TEST(RunTable, ReadsMegatronsIterations) {
    const std::string world =
        "using world size: 4, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel "
        "size: 1\n";
    const std::string last =
        " iteration      100/     100 | consumed samples:          800 | elapsed time per iteration (ms): "
        "537.3 | learning "
        "rate: 5.822E-05 | global batch size:     8 | lm loss: 7.448950E+00 | loss scale: 1.0 | grad norm: "
        "1.303 | number of "
        "skipped iterations:   0 | number of nan iterations:   0 |\n";
    const auto alone = found_in(world + last);
    ASSERT_EQ(alone.size(), 1u);
    EXPECT_EQ(alone[0]["log"], "megatron");
    EXPECT_EQ(alone[0]["model"], "gpt");
    EXPECT_EQ(alone[0]["ranks"], 4);
    EXPECT_EQ(alone[0]["steps"], 100);
    EXPECT_EQ(alone[0]["global_batch_size"], 8);
    EXPECT_EQ(alone[0]["final_loss"], 7.44895);
    EXPECT_NEAR(alone[0]["train_seconds"].get<double>(), 53.73, 1e-9);
    EXPECT_NEAR(alone[0]["samples_per_second"].get<double>(), 8 / 0.5373, 1e-9);
    EXPECT_NEAR(compare_runs(alone)[0]["step_ms"].get<double>(), 537.3, 1e-9);
    // Newer versions begin with the time. Each line is about the 10 iterations before it, and a validation about none.
    const auto line = [](int iteration, double milliseconds) {
        return fmt::format(
            " [2024-05-01 10:00:00] iteration {:8}/     300 | consumed samples: {:12} | elapsed time per "
            "iteration (ms): {} | "
            "throughput per GPU (TFLOP/s/GPU): 31.2 | learning rate: 1.5E-04 | global batch size:    16 | lm "
            "loss: 5.5E+00 |\n",
            iteration, iteration * 16, milliseconds);
    };
    const auto resumed =
        found_in(world + line(210, 400) + line(220, 200) +
                 " validation loss at iteration 220 | lm loss value: 6.500000E+00 |\n" + line(240, 150));
    ASSERT_EQ(resumed.size(), 1u);
    EXPECT_EQ(resumed[0]["steps"], 240);
    EXPECT_EQ(resumed[0]["resumed_from_step"], 200);
    EXPECT_NEAR(resumed[0]["train_seconds"].get<double>(), 4 + 2 + 3, 1e-9);
    EXPECT_NEAR(resumed[0]["samples_per_second"].get<double>(), 40 * 16 / 9.0, 1e-9);
    EXPECT_EQ(found_in(world + last + world + last).size(), 2u);
    EXPECT_TRUE(found_in(world).empty());
    EXPECT_EQ(found_in(last)[0]["ranks"], nullptr) << "nothing says it";
    EXPECT_TRUE(compare_runs({alone[0], found_in(last)[0]})[1]["efficiency"].is_null());
}

TEST(RunTable, ReadsSambaNovasLanguageModels) {
    const std::string said =
        "{'e2e_train_time': 2179.2292835712433, 'training_sequences_per_second': 192467.31088004305, "
        "'final_loss': "
        "4.781678199768066}\n247/3247 [01:03<00:00, 50.76it/s]\n";
    const auto runs =
        found_in("Using /data/ANL/results/sn30-r1-h1/vsastry/041823.03/Gpt1.5B.out for output\n" + said);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0]["log"], "samba");
    EXPECT_EQ(runs[0]["model"], "gpt");
    EXPECT_TRUE(runs[0]["ranks"].is_null()) << "one of 32 prints it";
    EXPECT_EQ(runs[0]["train_seconds"], 2179.2292835712433);
    EXPECT_EQ(runs[0]["samples_per_second"], 192467.31088004305);
    EXPECT_EQ(runs[0]["final_loss"], 4.781678199768066);
    EXPECT_TRUE(
        found_in("{'e2e_train_time': nan, 'training_sequences_per_second': 1, 'final_loss': 1}\n").empty());
}

// The SN10 tutorial's script tells its own time alone.
TEST(RunTable, ReadsTheDurationOfAScript) {
    const auto runs = found_in(
        "Model: FFNLogReg\nDate:  04/18/23\nTime:  19:03\nCOMPILE separately using "
        "compile_dataparallel.sh!!\nRUN\n"
        "DataParallel run: True\nDuration:  42\n");
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0]["model"], "FFNLogReg");
    EXPECT_EQ(runs[0]["train_seconds"], 42);
    EXPECT_TRUE(compare_runs(runs)[0]["speed_up"].is_null());
    EXPECT_TRUE(found_in("COMPILE\nDuration:  42\n").empty()) << "nothing was trained";
}

TEST(RunTable, OurOwnSummaryCountsWhereBothAreThere) {
    const std::string theirs = "Train Epoch: 5 [0/60000 (0%)]\tLoss: 0.1\nTraining time = 3\n";
    const std::string ours =
        R"({"model":"cnn","device":"cpu","world_size":1,"steps":1,"samples_per_second":7,"train_seconds":3})";
    const auto runs = found_in(theirs + ours + "\n");
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0]["samples_per_second"], 7);
}

constexpr const char* kSummary =
    R"({"model":"ffn","device":"cpu","threads":2,"world_size":8,"nodes":2,"precision":"bf16","steps":585,"global_batch_size":512,)"
    R"("final_loss":0.25,"test_accuracy":0.875,"samples_per_second":29952.0,"train_seconds":10.0})";

TEST(RunTable, FindsSummariesAmongOtherLines) {
    const auto runs =
        found_in(fmt::format("noise\n{{\"model\": broken\n0: {}\nmore\n{}\n", kSummary, kSummary));
    ASSERT_EQ(runs.size(), 2u);
    EXPECT_EQ(runs[0]["run"], "log");
    EXPECT_EQ(runs[1]["run"], "log#2");
    EXPECT_EQ(runs[0]["model"], "ffn");
    EXPECT_EQ(runs[0]["nodes"], 2);
    EXPECT_EQ(runs[0]["ranks"], 8);
    EXPECT_EQ(runs[0]["threads"], 2);
    EXPECT_EQ(runs[0]["global_batch_size"], 512);
    EXPECT_EQ(runs[0]["final_loss"], 0.25);
    EXPECT_EQ(runs[0]["precision"], "bf16");
    EXPECT_THAT(text_table(compare_runs(runs)), HasSubstr("DEVICE  PRECISION  NODES"));
}

// Its times cover only the remaining steps. Without any it has no times, and nothing to compare.
TEST(RunTable, ARunThatWentOnIsTimedByTheStepsThatItMade) {
    const auto summary = [](int ranks, int resumed, double rate, double seconds) {
        return fmt::format(
            R"({{"model":"ffn","device":"cpu","world_size":{},"steps":200,"samples_per_second":{},"train_seconds":{},"resumed_from_step":{}}})"
            "\n",
            ranks, rate, seconds, resumed);
    };
    const auto runs = found_in(summary(2, 190, 1000, 0.5) + summary(1, 200, 0, 0.001));
    ASSERT_EQ(runs.size(), 2u);
    const auto json = compare_runs(runs);
    EXPECT_EQ(json[0]["steps"], 200);
    EXPECT_EQ(json[0]["resumed_from_step"], 190);
    EXPECT_EQ(json[0]["step_ms"], 50);
    EXPECT_EQ(json[0]["speed_up"], 1);
    EXPECT_EQ(json[0]["baseline"], "log");
    for (const char* key : {"step_ms", "samples_per_second", "speed_up", "efficiency"})
        EXPECT_TRUE(json[1][key].is_null()) << key;
    const auto nothing = compare_runs(found_in(summary(1, 200, 0, 0.001)));
    EXPECT_TRUE(nothing[0]["speed_up"].is_null());
    EXPECT_TRUE(found_in(summary(1, 190, 0, 0.001)).empty()) << "steps without samples";
}

TEST(RunTable, TheLinesOfInstancesBesideASummaryAreOfThatRun) {
    const std::string instance =
        "inner train loop time : 10 for 5 epochs, number of global steps: 585, e2e samples_per_sec: 29952\n";
    EXPECT_EQ(found_in(instance + kSummary + "\n" + instance).size(), 1u);  // ranks end when they end
}

TEST(RunTable, WhatIsNoSummaryIsPassedOver) {
    for (const char* line :
         {"", "{}", R"({"model":"ffn"})",
          R"({"model":"ffn","world_size":0,"train_seconds":1,"samples_per_second":1})",
          R"({"model":"ffn","world_size":1,"train_seconds":0,"samples_per_second":1})",
          R"({"model":"ffn","world_size":"1","train_seconds":1,"samples_per_second":1})",
          R"({"model":"ffn","world_size":1,"train_seconds":1,"samples_per_second":1)",
          "inner train loop time : x for 10 epochs, number of global steps: 1, e2e samples_per_sec: 1",
          "inner train loop time : 1 for 10 epochs, number of global steps: 1, e2e samples_per_sec: -"})
        EXPECT_TRUE(found_in(line).empty()) << line;
}

// No counts, and no numbers that the conversion to one would take.
TEST(RunTable, ACountIsAWholeNumber) {
    const auto runs = found_in(
        R"({"model":"ffn","world_size":2,"nodes":1e300,"steps":-1e300,"train_seconds":1,"samples_per_second":1})");
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_TRUE(runs[0]["nodes"].is_null());
    EXPECT_EQ(runs[0]["steps"], 0);
    EXPECT_TRUE(
        found_in(R"({"model":"ffn","world_size":1e300,"train_seconds":1,"samples_per_second":1})").empty());
}

// Somebody's file: the search for an instance's line must not need more stack the longer a number is.
TEST(RunTable, NumbersOfAnyLengthEndNoReport) {
    const std::string number(300'000, '1');
    for (const std::string& line : {"inner train loop time : " + number +
                                        " for 10 epochs, number of global steps: 10, e2e samples_per_sec: 1",
                                    "inner train loop time : 1 for " + number +
                                        " epochs, number of global steps: 10, e2e samples_per_sec: 1"})
        EXPECT_TRUE(found_in(line).empty());
}

TEST(RunTable, OfAnOlderSummaryWhatItDoesNotSayIsLeftOpen) {
    const auto runs = found_in(
        R"({"model":"ffn","world_size":1,"train_seconds":1,"samples_per_second":2,"final_loss":null})");
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_TRUE(runs[0]["nodes"].is_null());
    EXPECT_TRUE(runs[0]["final_loss"].is_null());
    const auto table = text_table(compare_runs(runs));
    EXPECT_THAT(table, Not(HasSubstr("NODES")));
}

TEST(RunTable, IsAlignedForPeople) {
    EXPECT_EQ(text_table(compare_runs(kCyclone)),
              "RUN   MODEL  DEVICE  NODES  RANKS  THREADS  BATCH  STEPS  SECONDS  MS/STEP  SAMPLES/S  "
              "SPEED-UP  EFFICIENCY  LOSS  ACCURACY  AGAINST\n"
              "cpu   cnn    cpu         1      1        1     16  18750   192.25     10.3    1560.47      "
              "0.38           -  0.05    0.9900  gpu1\n"
              "gpu1  cnn    cuda        1      1        1     16  18750    73.48      3.9    4082.74      "
              "1.00        1.00  0.05    0.9900  gpu1\n"
              "gpu2  cnn    cuda        1      2        1     32   9375    42.06      4.5    7132.67      "
              "1.75        0.87  0.05    0.9900  gpu1\n"
              "gpu4  cnn    cuda        2      4        1     64   4685    25.61      5.5   11707.93      "
              "2.87        0.72  0.05    0.9900  gpu1\n");
}

TEST(RunTable, CsvQuotesWhatHoldsACommaOrAQuote) {
    Runs runs{kCyclone[1]};
    runs[0]["run"] = "a,\"b\".json";
    runs[0]["test_accuracy"] = nullptr;
    const auto table = csv_table(compare_runs(runs));
    EXPECT_THAT(table, StartsWith("run,model,device,precision,nodes,ranks,threads,global_batch_size,steps,"));
    EXPECT_THAT(table, HasSubstr("\n\"a,\"\"b\"\".json\",cnn,cuda,,1,1,1,16,18750,,73.48,"));
    EXPECT_THAT(table, HasSubstr(",0.05,,\"a,\"\"b\"\".json\",\n"));
}

TEST(RunTable, JsonHasTheSameKeysWithNullForWhatIsNotKnown) {
    const auto json = compare_runs(kCyclone);
    ASSERT_EQ(json.size(), 4u);
    EXPECT_EQ(json[3]["ranks"], 4);
    EXPECT_EQ(json[3]["train_seconds"], 25.61);
    EXPECT_TRUE(json[0]["efficiency"].is_null());
}

}  // namespace
}  // namespace dp::trainer
