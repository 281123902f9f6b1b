// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/step_log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace dp::trainer {
namespace {

// The steps of two epochs of 7 that are due.
std::vector<std::int64_t> due(const StepLog& log) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t number = 1; number <= 14; ++number)
        if (log.is_due({(number - 1) / 7 + 1, (number - 1) % 7 + 1, number})) numbers.push_back(number);
    return numbers;
}

TEST(StepLog, IsDueAfterSoManyOfTheTrainingOrBeforeSoManyOfAnEpoch) {
    EXPECT_EQ(due(StepLog(0, false)), std::vector<std::int64_t>{});
    EXPECT_EQ(due(StepLog(5, false)), (std::vector<std::int64_t>{5, 10}));
    EXPECT_EQ(due(StepLog(5, true)), (std::vector<std::int64_t>{1, 6, 8, 13}));
    EXPECT_EQ(due(StepLog(1, false)).size(), 14u);
    EXPECT_EQ(due(StepLog(1, true)).size(), 14u);
}

TEST(StepLog, KnowsWhatHasHappenedSinceItBegan) {
    StepLog log(5, false);
    const StepCounts first = log.since({5, 1, 20});
    EXPECT_EQ(first.steps, 5);
    EXPECT_EQ(first.skipped, 1);
    EXPECT_EQ(first.loss, 20);
    log.begin({5, 1, 20});
    const StepCounts second = log.since({10, 1, 35});
    EXPECT_EQ(second.steps, 5);
    EXPECT_EQ(second.skipped, 0);
    EXPECT_EQ(second.loss, 15);
    EXPECT_GE(log.seconds(), 0);
}

TEST(StepLog, LeavesOutWhatTheStepsHaveNotTaken) {
    using Clock = std::chrono::steady_clock;
    StepLog log(5, false);
    const auto begun = Clock::now();
    log.begin({});
    Clock::time_point aside_from, aside_until;
    {
        const StepLog::PausedTimer aside(log);
        aside_from = Clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        aside_until = Clock::now();
    }
    const double seconds = log.seconds();
    const std::chrono::duration<double> whole = Clock::now() - begun, left_out = aside_until - aside_from;
    EXPECT_LE(seconds, whole.count() - left_out.count());
    EXPECT_GE(seconds, 0);
}

}  // namespace
}  // namespace dp::trainer
