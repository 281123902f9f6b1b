// SPDX-License-Identifier: Apache-2.0
//
// `trainer find-lr`: which rates the steps have, what follows from a curve, and a test of a model that can learn.
#include "trainer/training/range_test.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "saved_training.hpp"
#include "trainer/commands/find_rate.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/commands/run.hpp"

namespace dp::trainer {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RangeTestTest, RatesRiseByTheSameFactor) {
    const RangeOptions options{1e-4, 1, 5};
    for (std::int64_t step = 1; step <= 5; ++step)
        EXPECT_NEAR(rate_of_range(options, step) / std::pow(10, static_cast<double>(step) - 5), 1, 1e-12);
}

TEST(RangeTestTest, RatesRiseByTheSameNumber) {
    const RangeOptions options{0.1, 0.5, 5, RateScale::linear};
    for (std::int64_t step = 1; step <= 5; ++step)
        EXPECT_NEAR(rate_of_range(options, step), 0.1 * static_cast<double>(step), 1e-12);
}

// Steepest over the logarithm of the rate, however the rates rise.
TEST(RangeTestTest, TheSteepestDescentIsTheSameOfLinearRates) {
    std::vector<RatePoint> points;
    for (int i = 1; i <= 10; ++i) {
        const double rate = 0.1 * i, loss = 3 - std::min(0.2 * i, 1.8);  // by the same number each step
        points.push_back({rate, loss, loss});
    }
    EXPECT_EQ(steepest_descent(points), 7u) << "0.2 is the smallest factor of rates at the end of the fall";
}

std::vector<RatePoint> curve(const std::vector<double>& losses) {
    std::vector<RatePoint> points;
    for (const double loss : losses)
        points.push_back({std::pow(10, static_cast<double>(points.size())), loss, loss});
    return points;
}

TEST(RangeTestTest, TheSteepestDescentIsBeforeTheMinimum) {
    struct {
        std::vector<double> losses;
        std::optional<std::size_t> place;
    } const cases[] = {
        {{3, 3, 2.9, 2.5, 1.5, 1.2, 1.1, 3}, 3},
        {{3, 3, 2.9, 2.5, 1.5, 1.2, 9, 2}, 3},  // the second fall is after an explosion
        {{3, 2, 1}, 1},
        {{3, 3, 3, 4}, {}},
        {{3, 4, 5}, {}},
        {{3, 2.99, 2.98, 2.99}, {}},  // noise
        {{3, 1}, {}},
        {{}, {}},
    };
    for (const auto& [losses, place] : cases)
        EXPECT_EQ(steepest_descent(curve(losses)), place) << losses.size();
}

TEST(RangeTestTest, TheSmoothLossFollowsTheLoss) {
    SmoothLoss smooth;
    EXPECT_EQ(smooth.add(2), 2);
    const double next = smooth.add(4);
    EXPECT_TRUE(3 < next && next < 3.1) << next;
    for (int i = 0; i < 200; ++i) smooth.add(5);
    EXPECT_NEAR(smooth.add(5), 5, 1e-4);
}

TEST(RangeTestTest, TheTextHasTheCurveAndWhatFollows) {
    RangeTest test{curve({3, 3, 2.9, 2.5, 1.5, 1.2, 1.1, 9}), true};
    const std::string text = range_text(test);
    EXPECT_THAT(text, StartsWith("  rate             loss\n  1.00e+00            3  |"));
    EXPECT_THAT(text, HasSubstr("\n  1.00e+06          1.1  |*\n"));
    EXPECT_THAT(text, HasSubstr("*  <- steepest\n"));
    EXPECT_THAT(text, HasSubstr("\nthe loss falls most steeply at --lr 1e+03; it explodes at 1e+07"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u);
    EXPECT_THAT(range_text({curve({1, 1, 1}), false}),
                HasSubstr("no rate lowers the loss; give a larger --lr-max"));
    EXPECT_THAT(range_text({curve({1, 2, 9}), true}),
                HasSubstr("give a smaller --lr-min, or more --lr-steps"));
}

// On any number of ranks with the same global batch.
TEST(RangeTestTest, AModelLearnsAtRatesThatAreNeitherTooSmallNorTooLarge) {
    std::optional<RangeTest> alone;
    for (const std::int64_t world : {1, 2}) {
        std::vector<std::optional<RangeTest>> found(static_cast<std::size_t>(world));
        ThreadWorld(world).run([&](Communicator& ranks) {
            Settings settings;
            settings.batch = 64 / world;
            const auto device = open_cpu(1);
            const auto model = find_model("ffn")->make({});
            Seen seen;
            const auto test = range_test(*find_model("ffn"), *model, pattern_set(), settings,
                                         {1e-6, 100, 120}, *device, ranks, seen);
            ASSERT_TRUE(test) << test.error().message;
            EXPECT_THAT(seen.checkpoints, ::testing::IsEmpty());
            EXPECT_GE(seen.steps, static_cast<std::int64_t>(test->points.size()));
            found[static_cast<std::size_t>(ranks.rank())] = *test;
        });
        for (const auto& test : found) {
            ASSERT_TRUE(test);
            EXPECT_TRUE(test->has_exploded) << "100 is too much";
            EXPECT_LT(test->points.size(), 120u);
            const auto steepest = steepest_descent(test->points);
            ASSERT_TRUE(steepest);
            EXPECT_GT(test->points[*steepest].rate, 1e-5);
            EXPECT_LT(test->points[*steepest].rate, 1e-1);
            EXPECT_NEAR(test->points[0].loss, std::log(10), 1) << "before the first step";
            if (!alone) alone = test;
            ASSERT_GT(test->points.size(), 40u);
            for (std::size_t i = 0; i < 40; ++i)
                EXPECT_NEAR(test->points[i].loss, alone->points[i].loss, 1e-3) << i;
        }
    }
}

TEST(FindLr, PrintsTheCurveAndAnObjectAndSavesNothing) {
    const Scratch scratch;
    const Parsed parsed = parse_options({"find-lr", "--model=linear", "--device=cpu", "--no-cache",
                                         "--lr-steps=60", "--profile=nothing", "--lr-max=1e3", "--lr=7",
                                         "--checkpoint-dir=" + (scratch / "saved").string()});
    ASSERT_TRUE(parsed.options) << parsed.text;
    ::testing::internal::CaptureStdout();
    const auto done = run(*parsed.options, {});
    const std::string printed = ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_THAT(printed, HasSubstr("--lr does nothing: find-lr takes --lr-steps steps"));
    EXPECT_THAT(printed,
                HasSubstr("find-lr keeps nothing of what is learnt: it writes nothing for --checkpoint-dir"));
    EXPECT_THAT(printed, HasSubstr("\nthe loss falls most steeply at --lr "));
    const auto end = printed.find_last_not_of('\n');
    const auto last = nlohmann::json::parse(printed.substr(printed.rfind('\n', end) + 1));
    EXPECT_EQ(last.at("learning_rates"), "linear");
    EXPECT_EQ(last.at("lr_max"), 1e3);
    EXPECT_EQ(last.at("rates").size(), last.at("steps"));
    EXPECT_EQ(last.at("losses").size(), last.at("steps"));
    EXPECT_GT(last.at("steepest_lr"), 1e-7);
    EXPECT_FALSE(std::filesystem::exists(scratch / "saved"));
}

TEST(FindLr, RefusesRatesThatDoNotRise) {
    const Parsed refused = parse_options({"find-lr", "--lr-min=0.1", "--lr-max=0.1"});
    ASSERT_FALSE(refused.options);
    EXPECT_THAT(refused.text, HasSubstr("--lr-min: 0.1 is not below --lr-max, which is 0.1"));
}

}  // namespace
}  // namespace dp::trainer
