// SPDX-License-Identifier: Apache-2.0
//
// `trainer compile` and the runs after it: the same data, the same training, and no word where there is
// nothing.

#include <fcntl.h>
#include <gmock/gmock.h>

#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "idx_files.hpp"
#include "scratch.hpp"
#include "trainer/commands/compile.hpp"
#include "trainer/commands/run.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// The verbs, with one thread that is told: no choice of threads, so that all runs have the same bits.
class CompileCommand : public ::testing::Test {
 protected:
    const Scratch scratch_;

    void SetUp() override {
        write_sprites(scratch_, {0, 5, 1, 7, 9, 2, 3, 4},
                      {'\x50', '\x60', '\x70', '\x7f', '\x11', '\x22', '\x33', '\x44'});
        setenv("OMP_NUM_THREADS", "1", 1);
    }
    void TearDown() override { unsetenv("OMP_NUM_THREADS"); }

    // Of an option said twice the last counts: what is given here is but a default.
    Options options(const std::vector<std::string>& words) const {
        std::vector<std::string> all{"--data-dir=" + scratch_.path().string(),
                                     "--cache-dir=" + (scratch_ / "cache").string(),
                                     "--json=" + (scratch_ / "json").string(), "--device=cpu"};
        all.insert(all.end(), words.begin(), words.end());
        const Parsed parsed = parse_options(all);
        EXPECT_TRUE(parsed.options) << parsed.text;
        return parsed.options.value_or(Options{});
    }
    // What the subcommand says at its end; what it prints is in `output`.
    Json outcome(const std::vector<std::string>& words, std::string* output = nullptr) const {
        const Options said = options(words);
        ::testing::internal::CaptureStdout();
        const auto now = std::chrono::steady_clock::now();
        const auto done = said.command == Command::compile ? compile(said, now) : run(said, now);
        const std::string printed = ::testing::internal::GetCapturedStdout();
        if (output != nullptr) *output = printed;
        EXPECT_TRUE(done) << done.error().message;
        return done ? Json::parse(contents_of(scratch_ / "json")) : Json();
    }
};

TEST_F(CompileCommand, ARunAfterItLearnsWhatItWouldHaveLearntWithoutIt) {
    const std::vector<std::vector<std::string>> models{
        {"--model=ffn", "--batch-size=2"},
        {"--model=cnn", "--batch-size=2"},
        {"--model=unet2d", "--init-features=2", "--samples=4", "--batch-size=2"},
        {"--model=linear", "--epochs=1", "--batch-size=100"}};
    for (const auto& model : models) {
        std::filesystem::remove_all(scratch_ / "cache");
        auto words = model;
        words.emplace_back("--steps=2");
        std::string output;
        const Json before = outcome(words, &output);
        EXPECT_THAT(output, Not(HasSubstr("compiled:"))) << model[0];
        words.insert(words.begin(), "compile");
        const Json compiled = outcome(words, &output);
        EXPECT_EQ(compiled.at("plan"), "made");
        EXPECT_EQ(compiled.at("data"), model[0] == "--model=linear" ? "none" : "made");
        EXPECT_THAT(output, HasSubstr("compiling " + model[0].substr(8)));
        words.erase(words.begin());
        const Json after = outcome(words, &output);
        EXPECT_THAT(output, HasSubstr("compiled: plan of "));
        EXPECT_THAT(output, HasSubstr("(measured) of "));
        for (const char* same : {"parameters_hash", "final_loss", "test_loss", "memory_peak_bytes"})
            EXPECT_EQ(after.at(same), before.at(same)) << model[0] << ", " << same;
        EXPECT_NEAR(after.at("memory_peak_bytes").get<double>(),
                    compiled.at("memory_peak_bytes").get<double>(), 1000)
            << model[0];
        words.emplace_back("--no-cache");
        EXPECT_EQ(outcome(words, &output).at("parameters_hash"), before.at("parameters_hash"));
        EXPECT_THAT(output, Not(HasSubstr("compiled:")));
    }
}

TEST_F(CompileCommand, KeepsWhatFitsUnlessItIsForced) {
    const std::vector<std::string> words{"compile", "--model=ffn", "--batch-size=2"};
    outcome(words);
    Json again = outcome(words);
    EXPECT_EQ(again.at("data"), "kept");
    EXPECT_EQ(again.at("plan"), "kept");
    // The data is the same for another batch.
    again = outcome({"compile", "--model=cnn", "--batch-size=4"});
    EXPECT_EQ(again.at("data"), "kept");
    EXPECT_EQ(again.at("plan"), "made");
    again = outcome({"compile", "--model=ffn", "--batch-size=2", "--force"});
    EXPECT_EQ(again.at("data"), "made");
    EXPECT_EQ(again.at("plan"), "made");
    // Cut files are made again.
    for (const auto& file : std::filesystem::directory_iterator(scratch_ / "cache"))
        std::filesystem::resize_file(file.path(), 1000);
    again = outcome(words);
    EXPECT_EQ(again.at("data"), "made");
    EXPECT_EQ(again.at("plan"), "made");
}

TEST_F(CompileCommand, WhatWasUsedLongestAgoMakesRoom) {
    outcome({"compile", "--model=ffn", "--batch-size=2"});
    const timespec two_days_ago{std::time(nullptr) - 172'800, 0}, times[2] = {two_days_ago, two_days_ago};
    for (const auto& file : std::filesystem::directory_iterator(scratch_ / "cache"))
        EXPECT_EQ(utimensat(AT_FDCWD, file.path().c_str(), times, 0), 0);
    // The data is used again, the other plan is not.
    const Json made = outcome({"compile", "--model=cnn", "--batch-size=2", "--cache-limit=512"});
    EXPECT_EQ(made.at("data"), "kept");
    EXPECT_EQ(made.at("cache_removed"), 1);
    EXPECT_GT(made.at("cache_bytes"), 512) << "what was used just now stays";
    EXPECT_EQ(outcome({"compile", "--model=ffn", "--batch-size=2"}).at("plan"), "made");
}

TEST_F(CompileCommand, ARunKnowsWhatItTakes) {
    outcome({"compile", "--model=ffn", "--batch-size=2"});
    const Options too_small = options({"--model=ffn", "--batch-size=2", "--memory-limit=1MiB"});
    const auto refused = run(too_small, std::chrono::steady_clock::now());
    EXPECT_THAT(refusal_of(refused), HasSubstr("when it was compiled, and cpu has 1.0 MiB"));
    EXPECT_EQ(refused.error().fault, Fault::device);
}

TEST_F(CompileCommand, RefusesWhatARunRefusesInTheSameWords) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--model=ffn", "--batch-size=1000"},
          {"--model=ffn", "--batch-size=2", "--image-size=512"},
          {"--model=ffn", "--batch-size=2", "--memory-limit=1MiB"},
          {"--model=ffn", "--batch-size=2", "--min-lr=5"},
          {"--model=gpt"}}) {
        auto compiling = words;
        compiling.insert(compiling.begin(), "compile");
        const auto now = std::chrono::steady_clock::now();
        ::testing::internal::CaptureStdout();
        const auto compiled = compile(options(compiling), now), trained = run(options(words), now);
        ::testing::internal::GetCapturedStdout();
        EXPECT_EQ(refusal_of(compiled), refusal_of(trained));
        ASSERT_FALSE(compiled);
        EXPECT_EQ(compiled.error().fault, trained.error().fault);
    }
}

TEST_F(CompileCommand, WithoutAPlaceToWriteItIsRefusedAndARunDoesWithout) {
    const std::string below_a_file = "--cache-dir=" + (scratch_ / "train-labels-idx1-ubyte/x").string();
    const auto refusal = [&](const std::string& word) {
        return refusal_of(compile(options({"compile", "--model=ffn", "--batch-size=2", word}),
                                  std::chrono::steady_clock::now()));
    };
    EXPECT_THAT(refusal(below_a_file), HasSubstr("give a directory that can be written"));
    EXPECT_THAT(refusal("--no-cache"), HasSubstr("give --cache-dir DIR"));
    outcome({"--model=ffn", "--batch-size=2", "--steps=1", below_a_file});
    // One rank of a node does it, and one complains.
    ASSERT_EQ(setenv("LOCAL_RANK", "1", 1), 0);
    const auto another = compile(options({"compile", "--model=ffn", "--batch-size=2", "--no-cache"}),
                                 std::chrono::steady_clock::now());
    unsetenv("LOCAL_RANK");
    EXPECT_TRUE(another);
}

TEST_F(CompileCommand, LeavesNoDirectoryWhereItIsRefused) {
    std::filesystem::resize_file(scratch_ / "train-images-idx3-ubyte", 100);
    EXPECT_FALSE(
        compile(options({"compile", "--model=ffn", "--cache-dir=" + (scratch_ / "new/cache").string()}),
                std::chrono::steady_clock::now()));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "new"));
}

// Names are bytes, and JSON is UTF-8.
TEST_F(CompileCommand, ADirectoryOfAnyNameIsTrainedFrom) {
    const std::filesystem::path data = scratch_ /
                                       "donn\xe9"
                                       "es";
    std::filesystem::create_directory(data);
    for (const auto& file : std::filesystem::directory_iterator(scratch_.path()))
        if (file.is_regular_file()) std::filesystem::copy(file.path(), data / file.path().filename());
    const std::string here = "--data-dir=" + data.string(), cache = "--cache-dir=" + (data / "c").string();
    EXPECT_EQ(outcome({"compile", "--model=ffn", "--batch-size=2", here, cache}).at("data"), "made");
    outcome({"--model=ffn", "--batch-size=2", "--steps=1", here, cache,
             "--checkpoint-dir=" + (data / "ck").string()});
}

}  // namespace
}  // namespace dp::trainer
