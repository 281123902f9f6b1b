// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/learning_rate.hpp"

#include <gtest/gtest.h>

namespace dp::trainer {
namespace {

TEST(LearningRate, IsMegatronsOfTheDliTutorial) {
    // 6e-5 to 6e-6 over 800 steps, a warm-up of 1 %; its log says 5.822E-05 at iteration 100.
    const LrSchedule plan{LrDecay::cosine, 6e-5, 6e-6, 0.01};
    EXPECT_NEAR(rate_at(plan, 100, 800), 5.822e-5, 5e-9);
}

// As there: --train-iters 100 --lr-decay-iters 800.
TEST(LearningRate, FallsOverStepsOfItsOwnWhereThoseAreGiven) {
    LrSchedule plan{LrDecay::cosine, 6e-5, 6e-6, 0.01, 800};
    for (const std::int64_t steps : {100, 800, 5000}) {
        EXPECT_NEAR(rate_at(plan, 4, steps), 3e-5, 1e-12) << "half of the warm-up";
        EXPECT_NEAR(rate_at(plan, 100, steps), 5.822e-5, 5e-9);
        EXPECT_EQ(rate_at(plan, 800, steps), 6e-6);
        EXPECT_EQ(rate_at(plan, 5000, steps), 6e-6);
    }
    plan.shape = LrDecay::constant;
    EXPECT_EQ(rate_at(plan, 5000, 5000), 6e-5);
}

TEST(LearningRate, WarmsUpThenTakesItsShape) {
    struct {
        LrSchedule plan;
        std::int64_t step, steps;
        double rate;
    } const cases[] = {
        {{LrDecay::constant, 2, 0, 0}, 1, 10, 2},     {{LrDecay::constant, 2, 1, 0}, 10, 10, 2},
        {{LrDecay::constant, 2, 0, 0.5}, 1, 10, 0.4}, {{LrDecay::constant, 2, 0, 0.5}, 5, 10, 2},
        {{LrDecay::constant, 2, 0, 0.5}, 6, 10, 2},   {{LrDecay::linear, 2, 1, 0}, 5, 10, 1.5},
        {{LrDecay::linear, 2, 1, 0}, 10, 10, 1},      {{LrDecay::linear, 2, 1, 0}, 11, 10, 1},
        {{LrDecay::linear, 2, 0, 0.2}, 2, 10, 2},     {{LrDecay::linear, 2, 0, 0.2}, 6, 10, 1},
        {{LrDecay::cosine, 2, 0, 0}, 5, 10, 1},       {{LrDecay::cosine, 2, 1, 0}, 10, 10, 1},
        {{LrDecay::cosine, 2, 0, 1}, 10, 10, 2},      {{LrDecay::cosine, 2, 0, 0.01}, 1, 10, 2 * 0.9797465},
    };
    for (const auto& c : cases)
        EXPECT_NEAR(rate_at(c.plan, c.step, c.steps), c.rate, 1e-6) << c.step << " of " << c.steps;
}

// As Megatron-LM logs it with --lr-decay-style=WSD --lr-wsd-decay-style=linear.
TEST(LearningRate, OfWsdFallsInItsLastSteps) {
    struct {
        double warmup;
        std::optional<std::int64_t> schedule, decay;
        std::int64_t step;
        double rate;
    } const cases[] = {
        {0, {}, {}, 90, 2},    {0, {}, {}, 95, 1.5},    {0, {}, {}, 100, 1},   {0, {}, {}, 101, 1},
        {0, {}, 50, 50, 2},    {0, {}, 50, 75, 1.5},    {0, {}, 100, 1, 1.99}, {0.1, {}, {}, 5, 1},
        {0.1, {}, {}, 10, 2},  {0.1, {}, 90, 55, 1.5},  {0, 200, 100, 100, 2}, {0, 200, 100, 150, 1.5},
        {0.95, {}, {}, 95, 2}, {0.95, {}, {}, 96, 1.8}, {1, {}, {}, 100, 2},
    };
    for (const auto& c : cases)
        EXPECT_NEAR(rate_at({LrDecay::wsd, 2, 1, c.warmup, c.schedule, c.decay}, c.step, 100), c.rate, 1e-9)
            << c.warmup << ", step " << c.step;
}

TEST(LearningRate, NeverRisesAfterTheWarmUp) {
    for (LrDecay shape : {LrDecay::constant, LrDecay::linear, LrDecay::cosine, LrDecay::wsd}) {
        const LrSchedule plan{shape, 1e-3, 1e-5, 0.1};
        double last = 1;
        for (std::int64_t step = 100; step <= 1000; ++step) {
            const double rate = rate_at(plan, step, 1000);
            EXPECT_LE(rate, last);
            EXPECT_GE(rate, 1e-5);
            last = rate;
        }
    }
}

}  // namespace
}  // namespace dp::trainer
