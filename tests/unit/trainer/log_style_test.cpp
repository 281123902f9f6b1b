// SPDX-License-Identifier: Apache-2.0
//
// Against lines of the tutorials.
#include "trainer/reports/log_style.hpp"

#include <gtest/gtest.h>

namespace dp::trainer {
namespace {

TEST(LogStyle, IsPytorchsOfTheCycloneTutorial) {
    const Schedule schedule{3750, 18750, 5, 16};
    EXPECT_EQ(pytorch_line({{1, 101, 101}, 0.54614, 0, 0, 0, 0}, schedule, 60000, 16),
              "Train Epoch: 1 [1600/60000 (3%)]\tLoss: 0.546140");
    EXPECT_EQ(pytorch_line({{5, 3701, 18701}, 0.000981, 0, 0, 0, 0}, schedule, 60000, 16),
              "Train Epoch: 5 [59200/60000 (99%)]\tLoss: 0.000981");
    // Of 2 ranks each counts its own.
    EXPECT_EQ(pytorch_line({{5, 1801, 9301}, 0.000066, 0, 0, 0, 0}, {1875, 9375, 5, 32}, 60000, 16),
              "Train Epoch: 5 [28800/60000 (96%)]\tLoss: 0.000066");
}

TEST(LogStyle, IsMegatronsOfTheDliTutorial) {
    EXPECT_EQ(
        megatron_line({{1, 100, 100}, 7.44895, 0.5373, 5.822e-5, 1.303, 0}, {100, 100, 1, 8}),
        " iteration      100/     100 | consumed samples:          800 | elapsed time per iteration (ms): "
        "537.3 | learning rate: 5.822E-05 | global batch size:     8 | lm loss: 7.448950E+00 | loss "
        "scale: 1.0 | grad norm: 1.303 | number of skipped iterations:   0 | number of nan iterations:   "
        "0 |");
}

TEST(LogStyle, OfATestIsMegatronsToo) {
    EXPECT_EQ(
        megatron_test_line(100, 6.5, 665.14),
        " validation loss at iteration 100 | lm loss value: 6.500000E+00 | lm loss PPL: 6.651400E+02 | ");
    EXPECT_EQ(megatron_test_line(100, 6.5, {}),
              " validation loss at iteration 100 | lm loss value: 6.500000E+00 | ");
}

TEST(LogStyle, IsSambaNovasOfTheSn30Tutorial) {
    Outcome outcome{};
    outcome.schedule = {1, 10, 10, 2048};
    outcome.train_seconds = 36.314290046691895;
    outcome.samples_per_second = 563.9653143065;
    outcome.last.loss = 4.781678199768066;
    EXPECT_EQ(samba_line(outcome),
              "inner train loop time : 36.314290046691895 for 10 epochs, number of global steps: 10, e2e "
              "samples_per_sec: 563.9653143065");
    EXPECT_EQ(samba_summary(outcome),
              "{'e2e_train_time': 36.314290046691895, 'training_sequences_per_second': 563.9653143065, "
              "'final_loss': 4.781678199768066}");
}

// Time by rate is the samples of the steps that were made: of a training that goes on, the rest.
TEST(LogStyle, SambaNovasCountsTheStepsThatTheTimeIsOf) {
    Outcome outcome{};
    outcome.schedule = {100, 200, 2, 16};
    outcome.resumed = 190;
    outcome.train_seconds = 0.5;
    outcome.samples_per_second = 320;
    EXPECT_EQ(
        samba_line(outcome),
        "inner train loop time : 0.5 for 2 epochs, number of global steps: 10, e2e samples_per_sec: 320");
}

TEST(LogStyle, OnlyPytorchsAndMegatronsHaveLinesOfSteps) {
    EXPECT_TRUE(tells_steps(LogStyle::pytorch));
    EXPECT_TRUE(tells_steps(LogStyle::megatron));
    EXPECT_FALSE(tells_steps(LogStyle::plain));
    EXPECT_FALSE(tells_steps(LogStyle::samba));
}

}  // namespace
}  // namespace dp::trainer
