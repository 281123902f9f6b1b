// SPDX-License-Identifier: Apache-2.0
//
// How many steps a training makes and of how many samples, and what is refused: tables over pure functions.
#include "trainer/training/schedule.hpp"

#include <gmock/gmock.h>

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

TEST(Schedule, CountsWholeGlobalBatches) {
    Settings settings;
    settings.epochs = 5;
    settings.batch = 64;
    const auto schedule = make_schedule(settings, 60000, 8);
    ASSERT_TRUE(schedule);
    EXPECT_EQ(schedule->global_batch, 512);
    EXPECT_EQ(schedule->steps_per_epoch, 117);
    EXPECT_EQ(schedule->total_steps, 585);
    EXPECT_EQ(schedule->epochs, 5);
    settings.max_steps = 118;
    EXPECT_EQ(make_schedule(settings, 60000, 8)->epochs, 2);
    EXPECT_EQ(make_schedule(settings, 60000, 8)->total_steps, 118);
    settings.max_steps = 1000000;
    EXPECT_EQ(make_schedule(settings, 60000, 8)->total_steps, 585);
    settings.epochs.reset();
    EXPECT_EQ(make_schedule(settings, 60000, 8)->total_steps, 1000000);
    EXPECT_EQ(make_schedule(settings, 60000, 8)->epochs, 8548);
}

TEST(Schedule, SaysBeforehandWhereTheEpochsEndBeforeTheStepsAreMade) {
    struct Case {
        std::optional<std::int64_t> epochs, steps;
        bool is_told;
    };
    const Case cases[] = {{5, 586, true}, {5, 585, false}, {5, 584, false}, {5, {}, false}, {{}, 586, false}};
    for (const auto& c : cases) {
        Settings settings;
        settings.batch = 64;
        settings.epochs = c.epochs;
        settings.max_steps = c.steps;
        const auto line = steps_left_out(settings, *make_schedule(settings, 60000, 8));
        EXPECT_EQ(line.has_value(), c.is_told) << c.steps.value_or(0);
        if (!line) continue;
        EXPECT_EQ(*line,
                  "--epochs 5 ends this training after 585 of the 586 steps that --steps asks for; leave out "
                  "--epochs "
                  "to take all of them");
    }
}

TEST(Schedule, CountsWhatIsAccumulated) {
    Settings settings;
    settings.batch = 4;
    settings.accumulate = 8;
    EXPECT_EQ(make_schedule(settings, 1000, 2)->global_batch, 64);
    EXPECT_EQ(make_schedule(settings, 1000, 2)->steps_per_epoch, 15);
    settings.accumulate = 1000;
    const auto schedule = make_schedule(settings, 1000, 2);
    ASSERT_FALSE(schedule);
    EXPECT_THAT(schedule.error().message, HasSubstr("--accumulate: 1000"));
    EXPECT_THAT(schedule.error().message, HasSubstr("; give a smaller --accumulate, or fewer ranks"));
}

TEST(Schedule, RefusesALearningRateThatEndsAboveItsLargest) {
    Settings settings;
    settings.rate = {LrDecay::cosine, 1e-4, 1e-3, 0};
    const auto schedule = make_schedule(settings, 1000, 1);
    ASSERT_FALSE(schedule);
    EXPECT_EQ(schedule.error().fault, Fault::usage);
    EXPECT_THAT(schedule.error().message, HasSubstr("--min-lr 0.001 is above"));
}

TEST(Schedule, RefusesADecayThatIsLongerThanItself) {
    Settings settings;
    settings.batch = 10;
    settings.rate = {LrDecay::wsd, 1e-3, 0, 0.1, {}, 90};
    EXPECT_TRUE(make_schedule(settings, 1000, 1));
    settings.rate.wsd_steps = 91;
    const auto schedule = make_schedule(settings, 1000, 1);
    ASSERT_FALSE(schedule);
    EXPECT_EQ(schedule.error().fault, Fault::usage);
    EXPECT_EQ(
        schedule.error().message,
        "--lr-wsd-decay-iters 91: the schedule has 100 steps, of which 90 come after the warm-up; give a "
        "smaller one, or a shorter warm-up");
    for (const auto& [warmup, steps] : {std::pair(0.9, 10), std::pair(0.8, 20), std::pair(0.7, 30)}) {
        settings.rate.warmup = warmup;
        settings.rate.wsd_steps = steps;
        EXPECT_TRUE(make_schedule(settings, 1000, 1)) << warmup;
        settings.rate.wsd_steps = steps + 1;
        EXPECT_FALSE(make_schedule(settings, 1000, 1)) << warmup;
    }
    settings.rate.steps = 200;
    EXPECT_TRUE(make_schedule(settings, 1000, 1));
}

TEST(Schedule, RefusesAGlobalBatchLargerThanTheData) {
    Settings settings;
    settings.batch = 126;
    const auto schedule = make_schedule(settings, 1000, 8);
    ASSERT_FALSE(schedule);
    EXPECT_EQ(schedule.error().fault, Fault::usage);
    EXPECT_THAT(schedule.error().message, HasSubstr("global batch of 1008"));
    EXPECT_THAT(schedule.error().message, HasSubstr("--batch-size 125 or less"));
    settings.batch = 125;
    EXPECT_TRUE(make_schedule(settings, 1000, 8));
    const auto fewer_than_ranks = make_schedule(settings, 7, 8);
    ASSERT_FALSE(fewer_than_ranks);
    EXPECT_THAT(fewer_than_ranks.error().message, HasSubstr("; give more samples, or fewer ranks"));
}

TEST(TestBatch, FitsItsMemoryButIsNoLargerThanABatchWhereAModelIsLarge) {
    EXPECT_EQ(test_batch_of(1, 64), 512);
    EXPECT_EQ(test_batch_of(0, 64), 512);
    EXPECT_EQ(test_batch_of(1 << 18, 8), 64);
    EXPECT_EQ(test_batch_of(1 << 24, 64), 16);
    EXPECT_EQ(test_batch_of(1 << 24, 2), 2);
}

}  // namespace
}  // namespace dp::trainer
