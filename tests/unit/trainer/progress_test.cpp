// SPDX-License-Identifier: Apache-2.0
#include "trainer/reports/report.hpp"

#include <gtest/gtest.h>

namespace dp::trainer {
namespace {

TEST(Progress, HasRateAndTimeLeft) {
    const Schedule schedule{3247, 3247, 1, 16};
    EXPECT_EQ(progress_line({1, 247, 246, 4.846}, schedule),
              "epoch 1/1  step 247/3247  [##                  ]   8 %  [00:04<00:59, 50.76it/s]");
    EXPECT_EQ(progress_line({1, 3247, 3246, 63.95}, schedule),
              "epoch 1/1  step 3247/3247  [####################] 100 %  [01:03<00:00, 50.76it/s]");
}

TEST(Progress, OfSlowStepsItHasSecondsAStepAndOfLongRunsHours) {
    EXPECT_EQ(progress_line({2, 150, 50, 200}, {100, 1150, 12, 8}),
              "epoch 2/12  step 150/1150  [###                 ]  13 %  [03:20<1:06:40, 4.00s/it]");
}

// After a checkpoint the rate is of the steps since then.
TEST(Progress, OfTheFirstStepItKnowsNoRateYet) {
    EXPECT_EQ(progress_line({1, 1, 0, 0}, {100, 100, 1, 8}),
              "epoch 1/1  step 1/100  [                    ]   1 %  [00:00<?, ?it/s]");
}

}  // namespace
}  // namespace dp::trainer
