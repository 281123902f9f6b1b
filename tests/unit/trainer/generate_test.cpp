// SPDX-License-Identifier: Apache-2.0
//
// `trainer generate`: which token comes next, and whole texts from a small gpt that was trained to say one.
#include "trainer/commands/generate.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <vector>

#include "saved_training.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/prepare/prepare.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

std::map<std::size_t, int> drawn(const std::vector<float>& logits, const Drawing& how) {
    Random random(3, 0);
    std::map<std::size_t, int> times;
    for (int i = 0; i < 10'000; ++i) ++times[pick_token(logits, how, random)];
    return times;
}

TEST(PickToken, DrawsByTheProbabilitiesOfTheLogits) {
    const std::vector<float> logits{std::log(1.0f), std::log(6.0f), std::log(3.0f)};
    auto times = drawn(logits, {1, 0});
    EXPECT_NEAR(times[0], 1000, 150);
    EXPECT_NEAR(times[1], 6000, 250);
    EXPECT_NEAR(times[2], 3000, 250);
    times = drawn(logits, {0.5, 0});  // squares: 1, 36, 9
    EXPECT_NEAR(times[0], 10'000 / 46, 80);
    EXPECT_NEAR(times[1], 360'000 / 46, 250);
}

TEST(PickToken, TakesNoneButTheLikeliestWhereThatIsAsked) {
    const std::vector<float> logits{0, 2, 1, 2};
    EXPECT_EQ(drawn(logits, {0, 0}), (std::map<std::size_t, int>{{1, 10'000}}));
    EXPECT_EQ(drawn(logits, {1, 1}), (std::map<std::size_t, int>{{1, 10'000}}));
    const auto two = drawn(logits, {1, 2});
    EXPECT_EQ(two.size(), 2u);
    EXPECT_NEAR(two.at(3), 5000, 250);
    EXPECT_EQ(drawn(logits, {1, 99}).size(), 4u) << "more than there are is all";
}

TEST(PickToken, TakesTheLikeliestThatMakeUpTopP) {
    const std::vector<float> logits{std::log(1.0f), std::log(5.0f), std::log(2.0f), std::log(2.0f)};
    struct {
        Drawing how;
        std::map<std::size_t, int> expected;  // in percent
    } const cases[] = {
        {{1, 0, 1}, {{0, 10}, {1, 50}, {2, 20}, {3, 20}}},
        {{1, 0, 0.95}, {{0, 10}, {1, 50}, {2, 20}, {3, 20}}},
        {{1, 0, 0.85}, {{1, 56}, {2, 22}, {3, 22}}},
        {{1, 0, 0.6}, {{1, 71}, {2, 29}}},
        {{1, 0, 0.4}, {{1, 100}}},
        {{1, 0, 1e-6}, {{1, 100}}},
        {{1, 2, 0.8}, {{1, 71}, {2, 29}}},  // 5 and 2 of 7
        {{1, 2, 0.7}, {{1, 100}}},
        {{0.5, 0, 0.7}, {{1, 100}}},  // squares: 25 of 34
    };
    for (const auto& [how, expected] : cases) {
        const auto times = drawn(logits, how);
        ASSERT_EQ(times.size(), expected.size()) << how.top_p;
        for (const auto& [token, percent] : expected) EXPECT_NEAR(times.at(token), 100 * percent, 300);
    }
}

// A gpt that has learnt to go on with "abcabc…", and where it lies.
class Generate : public ::testing::Test {
 protected:
    Generate() {
        setenv("OMP_NUM_THREADS", "1", 1);
        std::string text;
        for (int i = 0; i < 400; ++i) text += "abc";
        PrepareOptions prepare;
        prepare.text = {scratch_.write("text.txt", text)};
        prepare.tokenizer = "bytes";
        prepare.output = scratch_ / "data";
        const auto prepared = prepare_data(prepare);
        EXPECT_TRUE(prepared) << prepared.error().message;
        ModelShape shape;
        shape.gpt = {.layers = 1, .hidden = 32, .heads = 2, .sequence = 16, .vocabulary = 257};
        Settings settings;
        settings.batch = 8;
        settings.epochs = 25;
        settings.rate.rate = 3e-3;
        settings.checkpoints.directory = scratch_ / "saved";
        const auto data = load_tokens(prepare.output, shape.gpt.sequence, shape.gpt.vocabulary);
        EXPECT_TRUE(data);
        EXPECT_LT(outcome_of(train_saved(1, settings, {}, *data, "gpt", shape)).last.loss, 0.5);
    }
    ~Generate() override { unsetenv("OMP_NUM_THREADS"); }
    std::string generated(Precision precision, double temperature) const {
        GenerateOptions options;
        options.checkpoint_directory = scratch_ / "saved";
        options.data_directory = scratch_ / "data";
        options.prompt = "ab";
        options.tokens = 60;
        options.drawing.temperature = temperature;
        options.precision = precision;
        ::testing::internal::CaptureStdout();
        const auto done = generate(options);
        const std::string text = ::testing::internal::GetCapturedStdout();
        EXPECT_TRUE(done) << done.error().message;
        return text;
    }

    Scratch scratch_;
};

TEST_F(Generate, InEitherPrecisionSaysWhatWasLearnt) {
    std::string learnt;
    for (int i = 0; i < 20; ++i) learnt += "abc";
    learnt += "ab\n";
    EXPECT_EQ(generated(Precision::fp32, 0), learnt);
    EXPECT_EQ(generated(Precision::bf16, 0), learnt);
    // Hot enough that rounding makes the difference: it does compute in bf16.
    EXPECT_EQ(generated(Precision::fp32, 100), generated(Precision::fp32, 100));
    EXPECT_NE(generated(Precision::fp32, 100), generated(Precision::bf16, 100));
}

TEST_F(Generate, GoesBackToTheNewestWholeCheckpoint) {
    const std::string before = generated(Precision::fp32, 0);
    namespace fs = std::filesystem;
    const auto saved = scratch_ / "saved";
    const auto whole = checkpoint_path(saved, checkpoints_in(saved)[0]),
               newer = checkpoint_path(saved, 999'999);
    fs::copy(whole, newer, fs::copy_options::recursive);  // its manifest is of another step
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(generated(Precision::fp32, 0), before);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("step-000999999 is damaged: its manifest.json is of step "));
    fs::remove_all(newer);
    fs::resize_file(whole / shard_name(0, 1), 7);
    GenerateOptions options;
    options.checkpoint_directory = saved;
    options.data_directory = scratch_ / "data";
    EXPECT_THAT(generate(options).error().message,
                HasSubstr("; no older one is whole; remove it to begin anew"));
}

TEST(GenerateOptionsTest, PrecisionIsAnOptionOfItsOwnBehindTheVerb) {
    const auto parsed = parse_options({"generate", "--checkpoint-dir=c", "--data-dir=d", "--precision=bf16"});
    ASSERT_TRUE(parsed.options) << parsed.text;
    EXPECT_EQ(parsed.options->generate.precision, Precision::bf16);
    EXPECT_EQ(parse_options({"generate", "--checkpoint-dir=c", "--data-dir=d"}).options->generate.precision,
              Precision::fp32);
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"--precision=bf16", "generate", "--checkpoint-dir=c", "--data-dir=d"},
             {"--precision=bf16", "prepare", "--output=o"},
             {"--precision=bf16", "report", "/dev/null"}}) {
        const Parsed refused = parse_options(words);
        EXPECT_FALSE(refused.options);
        EXPECT_EQ(refused.code, 2);
        EXPECT_THAT(refused.text, HasSubstr("--precision is for training; the options of `trainer " +
                                            words[1] + "` come after " + words[1]));
    }
}

TEST(PickToken, HugeLogitsAreNoTrouble) {
    EXPECT_EQ(drawn({1e30f, -1e30f, 0}, {1e-3, 0}), (std::map<std::size_t, int>{{0, 10'000}}));
}

}  // namespace
}  // namespace dp::trainer
