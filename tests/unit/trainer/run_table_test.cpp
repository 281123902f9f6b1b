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
    EXPECT_THAT(table, HasSubstr(",0.05,,\"a,\"\"b\"\".json\"\n"));
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
