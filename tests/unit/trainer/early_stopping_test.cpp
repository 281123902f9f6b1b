// SPDX-License-Identifier: Apache-2.0
//
// --early-stopping: which test ends a training, and that all ranks end there, with a checkpoint, also if they resume in between.
#include "trainer/training/early_stopping.hpp"

#include <gmock/gmock.h>

#include "saved_training.hpp"

namespace dp::trainer {
namespace {

using ::testing::IsEmpty;

TEST(EarlyStopping, IsDueAfterSoManyTestsWithoutASmallerLoss) {
    struct {
        std::int64_t patience;
        std::vector<double> losses;
        std::optional<std::size_t> due;  // after so many tests
    } const cases[] = {
        {1, {3, 2, 1}, {}},
        {1, {3, 2, 2}, 3},
        {1, {3, 4}, 2},
        {2, {3, 4, 2, 3, 1}, {}},
        {2, {3, 4, 2, 3, 2.5}, 5},
        {3, {1, 2, 2, 0.9, 2, 2}, {}},
        {3, {1, 2, 2, 0.9, 2, 2, 1}, 7},
        {0, {1, 2, 3, 4, 5}, {}},
    };
    for (const auto& [patience, losses, due] : cases) {
        EarlyStopping stopping(patience);
        std::optional<std::size_t> found;
        for (std::size_t i = 0; i < losses.size(); ++i) {
            EXPECT_EQ(stopping.is_due(), found.has_value());
            stopping.see(static_cast<std::int64_t>(10 * (i + 1)), losses[i]);
            if (stopping.is_due() && !found) found = i + 1;
        }
        EXPECT_EQ(found, due) << patience;
    }
}

TEST(EarlyStopping, ATestThatComesAgainAfterACheckpointCountsOnce) {
    EarlyStopping before(2);
    before.see(10, 1);
    before.see(20, 2);
    EarlyStopping after(2);
    after.resume(before.best(), 20);
    after.see(20, 2);
    EXPECT_FALSE(after.is_due());
    after.see(30, 2);
    EXPECT_TRUE(after.is_due());
    EXPECT_EQ(
        after.line(99),
        "stopped early after step 30 of 99: the test loss has not fallen in 2 tests; it was 1 after step 10");
    EarlyStopping off(0);
    off.resume(after.best(), 30);
    EXPECT_FALSE(off.is_due());
}

// With less patience than before, in the middle of what follows the last test.
TEST(EarlyStopping, WhoGoesOnBehindATestIsTestedOnceMore) {
    EarlyStopping before(5);
    for (const std::int64_t step : {10, 20, 30}) before.see(step, static_cast<double>(step));
    for (const double loss : {1.0, 99.0}) {
        EarlyStopping after(2);
        after.resume(before.best(), 35);
        EXPECT_FALSE(after.is_due());
        after.see(40, loss);
        EXPECT_EQ(after.is_due(), loss > 10);
    }
    EarlyStopping at_the_test(2);
    at_the_test.resume(before.best(), 30);
    EXPECT_TRUE(at_the_test.is_due());
}

// 23 steps in each of so many epochs, in which nothing is learnt: a step is too small for 32 bits.
Settings standing_still(const Scratch& scratch, std::int64_t patience) {
    Settings settings = saved_settings(scratch / "saved");
    settings.epochs = 6;
    settings.rate.rate = 1e-30;
    settings.early_stopping = patience;
    return settings;
}

void expect_end(const std::vector<RankOf>& ranks, std::int64_t step, std::int64_t epoch) {
    const Outcome outcome = outcome_of(ranks);
    ASSERT_TRUE(outcome.stopped_after);
    EXPECT_EQ(outcome.schedule.total_steps, step);
    EXPECT_EQ(outcome.schedule.epochs, epoch);
    EXPECT_EQ(outcome.last.epoch, epoch);
    EXPECT_TRUE(outcome.end_is_saved);
    for (const RankOf& rank : ranks) EXPECT_EQ(rank.seen.early_stops.size(), 1u);
}

TEST(EarlyStopping, EndsAllRanksAfterTheSameEpochWithACheckpointFromWhichALargerNumberGoesOn) {
    const Scratch scratch;
    const auto ranks = train_saved(2, standing_still(scratch, 2));
    expect_end(ranks, 69, 3);
    for (const RankOf& rank : ranks) EXPECT_EQ(rank.seen.last_step, 69);
    EXPECT_EQ(checkpoints_in(scratch / "saved"), std::vector<std::int64_t>{69});

    const auto again = train_saved(2, standing_still(scratch, 2));
    expect_end(again, 69, 3);
    EXPECT_EQ(again[0].seen.steps, 0) << "it had ended";
    EXPECT_EQ(again[0].outcome->last.test_loss, ranks[0].outcome->last.test_loss);
    const auto longer = train_saved(2, standing_still(scratch, 3));
    expect_end(longer, 92, 4);
    EXPECT_EQ(longer[0].seen.steps, 23);
    EXPECT_EQ(longer[0].outcome->stopped_after->step, 23) << "of the best test";
}

TEST(EarlyStopping, EndsWithinAnEpochAndATrainingThatWasInterruptedEndsThereToo) {
    for (const bool is_interrupted : {false, true}) {
        const Scratch scratch;
        Settings settings = standing_still(scratch, 2);
        settings.test_every = 7;  // 7, 14 and 21; without what the checkpoint knows 21, 23 and 28
        if (is_interrupted) {
            EXPECT_EQ(the_error(train_saved(2, settings, 14)).fault, Fault::stopped);
            const auto saved = checkpoints_in(scratch / "saved").front();
            EXPECT_TRUE(14 <= saved && saved < 21) << saved;
        }
        const auto ranks = train_saved(2, settings);
        expect_end(ranks, 21, 1);
        for (const RankOf& rank : ranks) EXPECT_EQ(rank.seen.last_step, 21);
        EXPECT_EQ(checkpoints_in(scratch / "saved").front(), 21);
        EXPECT_EQ(ranks[0].seen.checkpoints.size(), 1u) << "its end is saved once";
    }
}

TEST(EarlyStopping, LeavesATrainingAloneThatLearnsOrWhoseTestsCannotBeCompared) {
    const Scratch scratch;
    Settings settings = saved_settings(scratch / "saved");
    settings.early_stopping = 1;
    auto ranks = train_saved(1, settings);
    EXPECT_FALSE(outcome_of(ranks).stopped_after);
    EXPECT_EQ(ranks[0].seen.last_step, 69);
    EXPECT_THAT(ranks[0].seen.early_stops, IsEmpty());

    // One test of a part of the data, within the third epoch; all of it after each.
    const Scratch other;
    settings = standing_still(other, 1);
    settings.epochs = 3;
    settings.test_every = 50;
    settings.test_batches = 1;
    ranks = train_saved(1, settings);
    EXPECT_FALSE(outcome_of(ranks).stopped_after);
    EXPECT_EQ(ranks[0].seen.last_step, 69);
}

}  // namespace
}  // namespace dp::trainer
