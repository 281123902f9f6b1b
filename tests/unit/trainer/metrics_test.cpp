// SPDX-License-Identifier: Apache-2.0
//
// The lines of --metrics: their keys, which programs read, and that a run that goes on in another's file
// neither damages nor hides what stands there.
#include "trainer/reports/metrics_file.hpp"
#include "trainer/training/training.hpp"

#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <sstream>

#include "devices.hpp"
#include "scratch.hpp"
#include "small_files.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Schedule kSchedule{100, 150, 2, 8};
const LogReport kLog{{1, 50, 50}, 7.5, 0.5, 6e-5, 1.25, 2};

std::vector<Json> lines_of(const std::filesystem::path& file) {
    std::vector<Json> lines;
    std::istringstream text(contents_of(file));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line, nullptr, false));
    return lines;
}

TEST(Metrics, AStepsLineHasWhatProgramsLookFor) {
    EXPECT_EQ(step_metrics("12.0", 100.5, kLog, kSchedule),
              R"({"event":"step","run":"12.0","time":100.5,"epoch":1,"step":50,"samples":400,"loss":7.5,)"
              R"("learning_rate":6e-05,"gradient_norm":1.25,"samples_per_second":16.0,"step_ms":500.0,)"
              R"("skipped":2})");
}

TEST(Metrics, AnEpochsLineHasItsTestAndTheStepsUntilItsEnd) {
    EXPECT_EQ(
        epoch_metrics("12.0", 100.5, {1, 0.5, 0.25, 0.875, 2.0, 400.0, 1}, kSchedule),
        R"({"event":"epoch","run":"12.0","time":100.5,"epoch":1,"step":100,"loss":0.5,"test_loss":0.25,)"
        R"("test_accuracy":0.875,"samples_per_second":400.0,"seconds":2.0,"skipped":1})");
    const Json cut_short = Json::parse(epoch_metrics("12.0", 0, {2, 0.5, 0.25, {}, 2, 400}, kSchedule));
    EXPECT_EQ(cut_short["step"], 150);
    EXPECT_FALSE(cut_short.contains("test_accuracy"));
}

TEST(Metrics, ATestsLineHasItsStep) {
    EXPECT_EQ(test_metrics("12.0", 100.5, {{2, 50, 150}, 0.25, 0.875, {}, 2.0}),
              R"({"event":"test","run":"12.0","time":100.5,"epoch":2,"step":150,"test_loss":0.25,)"
              R"("test_accuracy":0.875,"seconds":2.0})");
    EXPECT_EQ(Json::parse(test_metrics("12.0", 0, {{1, 5, 5}, 0, {}, 1.0, 2}))["test_perplexity"], 1.0);
}

TEST(Metrics, WhatIsNoNumberIsNull) {
    LogReport bad = kLog;
    bad.loss = std::nan("");
    bad.gradient_norm = INFINITY;
    const Json line = Json::parse(step_metrics("12.0", 0, bad, kSchedule));
    EXPECT_TRUE(line["loss"].is_null());
    EXPECT_TRUE(line["gradient_norm"].is_null());
}

TEST(Metrics, ALineIsThereAsSoonAsItIsSaid) {
    const Scratch directory;
    auto file = MetricsFile::open(directory / "m.jsonl", "first", {{"model", "ffn"}});
    ASSERT_TRUE(file) << file.error().message;
    (*file)->on_log(kLog, kSchedule);
    const auto lines = lines_of(directory / "m.jsonl");  // while the file is open
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0]["event"], "start");
    EXPECT_EQ(lines[0]["model"], "ffn");
    EXPECT_EQ(lines[1]["step"], 50);
}

TEST(Metrics, ARunThatGoesOnAppendsAndEachLineSaysWhoseItIs) {
    const Scratch directory;
    for (const char* run : {"first", "second"}) {
        auto file = MetricsFile::open(directory / "m.jsonl", run, {{"model", "ffn"}});
        ASSERT_TRUE(file);
        (*file)->on_log(kLog, kSchedule);
    }
    const auto lines = lines_of(directory / "m.jsonl");
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[1]["run"], "first");
    EXPECT_EQ(lines[3]["run"], "second");
    EXPECT_EQ(lines[1]["step"], lines[3]["step"]);
}

TEST(Metrics, ALineThatWasCutOffIsNotJoinedToTheNext) {
    const Scratch directory;
    directory.write("m.jsonl", "{\"event\":\"start\"}\n{\"event\":\"st");
    ASSERT_TRUE(MetricsFile::open(directory / "m.jsonl", "second", {{"model", "ffn"}}));
    const auto lines = lines_of(directory / "m.jsonl");
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_TRUE(lines[1].is_discarded());
    EXPECT_EQ(lines[2]["run"], "second");
}

TEST(Metrics, AFileThatCannotBeWrittenIsTheUsersToMend) {
    for (const char* file : {"/nowhere/m.jsonl", "/", "/dev/full"}) {
        const auto opened = MetricsFile::open(file, "run", {{"model", "ffn"}});
        ASSERT_FALSE(opened) << file;
        EXPECT_EQ(opened.error().fault, Fault::usage);
        EXPECT_THAT(opened.error().message, HasSubstr(file));
    }
}

TEST(Metrics, WhereThereIsNoRoomTheFileIsAsItWas) {
    const Scratch directory;
    directory.write("old", "{\"event\":\"start\"}\n");
    {
        const SmallFiles full(30);
        for (const char* file : {"new", "old"}) {
            const auto opened = MetricsFile::open(directory / file, "run", {{"model", "ffn"}});
            EXPECT_THAT(refusal_of(opened), HasSubstr("cannot be written: File too large"));
        }
    }
    EXPECT_FALSE(std::filesystem::exists(directory / "new"));
    EXPECT_EQ(contents_of(directory / "old"), "{\"event\":\"start\"}\n");
}

TEST(Metrics, ARunIsNamedByItsJobAndHowOftenThatWasStarted) {
    setenv("SLURM_JOB_ID", "812", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    unsetenv("SLURM_RESTART_COUNT");
    EXPECT_EQ(name_of_this_run(), "812.0");
    setenv("SLURM_RESTART_COUNT", "2", 1);
    EXPECT_EQ(name_of_this_run(), "812.0 restart 2");
    for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}) unsetenv(name);
    EXPECT_THAT(name_of_this_run(), HasSubstr(std::to_string(getpid())));
}

class Logs final : public Observer {
 public:
    void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
    void on_epoch(const EpochReport&, const Schedule&) override {}
    void on_log(const LogReport& log, const Schedule&) override { norms.push_back(log.gradient_norm); }
    std::vector<double> norms;
};

// Without the guard's waiting in each step.
TEST(Metrics, TheNormOfTheGradientsIsKnownWithoutAGuard) {
    std::vector<double> norms[2];
    for (const bool guarded : {false, true}) {
        Settings settings;
        settings.batch = 100;
        settings.accumulate = 2;
        settings.max_steps = 4;
        settings.log_every = 2;
        settings.skip_bad_steps = guarded;
        const auto device = open_cpu(1);
        const auto model = find_model("linear")->make({});
        SingleCommunicator alone;
        Logs logs;
        ASSERT_TRUE(
            train(*find_model("linear"), *model, make_linear_regression(), settings, *device, alone, logs));
        norms[guarded ? 1 : 0] = logs.norms;
    }
    ASSERT_EQ(norms[0].size(), 2u);
    EXPECT_GT(norms[0][0], 0);
    EXPECT_EQ(norms[0], norms[1]);
}

}  // namespace
}  // namespace dp::trainer
