// SPDX-License-Identifier: Apache-2.0
//
// Signals: noted, agreed on by all ranks, and harmless while a checkpoint is being written.
#include "trainer/checkpoint/stop.hpp"

#include <gmock/gmock.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "saved_training.hpp"
#include "trainer/devices/cpu/gemm.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;

TEST(StepsToNext, ExchangesFourTimesASecondAtMost) {
    struct Case {
        std::int64_t interval;
        double seconds_per_step;
        std::int64_t next;
    };
    const Case cases[] = {
        {1, 1e-4, 2},    // slowly at first
        {2, 1e-4, 4},    //
        {32, 1e-4, 64},  //
        {64, 1e-4, 64},  // and not too far
        {64, 0.01, 25},  // a quarter of a second
        {64, 0.2, 1},    //
        {1, 30, 1},      // at least each step
        {1, 0, 2},
    };
    for (const auto& c : cases)
        EXPECT_EQ(steps_to_next(c.interval, c.seconds_per_step), c.next) << c.seconds_per_step;
}

TEST(StopAgreement, StopsAllRanksAfterTheSameStep) {
    std::vector<std::int64_t> stopped(3, 0);
    ThreadWorld(3).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        std::int64_t step = 0;
        // Rank 1 hears of it first.
        const std::int64_t hears = ranks.rank() == 1 ? 5 : 9;
        StopAgreement agreement([&] { return step >= hears ? SIGTERM : 0; }, *device, ranks);
        for (step = 1; step <= 100; ++step) {
            const auto agreed = agreement.after_step();
            ASSERT_TRUE(agreed);
            if (agreed->signal == 0) continue;
            EXPECT_EQ(agreed->signal, SIGTERM);
            break;
        }
        stopped[static_cast<std::size_t>(ranks.rank())] = step;
    });
    EXPECT_GE(stopped[0], 5);
    EXPECT_LT(stopped[0], 100);
    EXPECT_THAT(stopped, ElementsAre(stopped[0], stopped[0], stopped[0]));
}

TEST(StopAgreement, GoesOnWhereNobodyAsks) {
    const auto device = open_cpu(1);
    SingleCommunicator single;
    StopAgreement agreement({}, *device, single);
    for (int step = 0; step < 200; ++step) EXPECT_EQ(agreement.after_step()->signal, 0);
}

TEST(StopAgreement, SaysOnAllRanksAfterTheSameStepThatNoneIsBusyAnyMore) {
    std::vector<std::int64_t> heard(3, 0);
    ThreadWorld(3).run([&](Communicator& ranks) {
        const auto device = open_cpu(1);
        StopAgreement agreement({}, *device, ranks);
        for (std::int64_t step = 1; step <= 200; ++step) {
            const auto agreed = agreement.after_step(step <= 7 * ranks.rank());
            ASSERT_TRUE(agreed);
            auto& mine = heard[static_cast<std::size_t>(ranks.rank())];
            if (agreed->all_are_free && mine == 0) mine = step;
        }
    });
    EXPECT_GT(heard[0], 14);
    EXPECT_LE(heard[0], 200);
    EXPECT_THAT(heard, ElementsAre(heard[0], heard[0], heard[0]));
}

TEST(StopSignals, AreCalledByTheirNames) {
    EXPECT_EQ(name_of_signal(SIGUSR1), "SIGUSR1");
    EXPECT_EQ(name_of_signal(SIGTERM), "SIGTERM");
    EXPECT_EQ(name_of_signal(4711), "signal 4711");
}

// In a process of its own, because what is noted stays noted: real signals, one at a step and more of both
// while the checkpoint is being written, which all the same is whole.
void train_and_signal(const std::filesystem::path& directory) {
    const ModelInfo& info = *find_model("ffn");
    Settings settings = saved_settings(directory);
    settings.checkpoints.stop_signal = stop_signal;
    Seen seen;
    seen.at_step = [](std::int64_t step) {
        if (step == 20) kill(getpid(), SIGTERM);
    };
    bool stopped = false;
    seen.at_phase = [&](Phase phase) {
        if (phase != Phase::checkpoint || stop_signal() == 0) return;
        stopped = true;
        for (const int number : {SIGTERM, SIGUSR1, SIGTERM}) kill(getpid(), number);
    };
    hold_stop_signals();
    catch_stop_signals();
    const auto device = open_cpu(1);
    SingleCommunicator single;
    const auto model = info.make({});
    const auto outcome = train(info, *model, pattern_set(), settings, *device, single, seen);
    if (outcome || !stopped) exit(1);
    fprintf(stderr, "%s\n", outcome.error().message.c_str());
    exit(static_cast<int>(outcome.error().fault));
}

TEST(StopSignals, OfTheSameKindDoNotDisturbTheCheckpoint) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // The other process runs this test from its beginning, too, and must come to the same directory.
    const Scratch mine;
    setenv("DP_STOP_TEST", mine.path().c_str(), 0);
    EXPECT_EXIT(train_and_signal(std::getenv("DP_STOP_TEST")), ::testing::ExitedWithCode(7),
                "received SIGTERM: stopped after step [2-6][0-9] of 69; the same command continues from ");
    const auto rest = train_saved(2, saved_settings(std::getenv("DP_STOP_TEST")));
    unsetenv("DP_STOP_TEST");
    ASSERT_TRUE(rest[0].outcome) << rest[0].outcome.error().message;
    EXPECT_GE(rest[0].outcome->resumed, 20);
    const Scratch whole;
    const auto uninterrupted = train_saved(2, saved_settings(whole.path()));
    EXPECT_NEAR(rest[0].outcome->last.loss, uninterrupted[0].outcome->last.loss, 1e-4);
}

TEST(StopSignals, EndTheProcessUntilTheyAreCaught) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const int number : {SIGUSR1, SIGTERM})
        EXPECT_EXIT(
            {
                hold_stop_signals();
                kill(getpid(), number);
                sleep(60);
            },
            ::testing::KilledBySignal(number), "");
}

// Signals without end while oneDNN makes one of those products whose stack pointer points into the heap; in a
// process of its own, which may die of it.
void multiply_under_signals() {
    hold_stop_signals();
    catch_stop_signals();
    std::atomic<bool> over = false;
    std::thread sender([&] {
        while (!over) {
            kill(getpid(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    });
    constexpr std::int64_t kRows = 16, kWidth = 1000;
    const std::vector<float> x(kRows * kWidth, 1), w(kWidth * kWidth, 1);
    std::vector<float> y(kRows * kWidth);
    bool right = true;
    for (int time = 0; time < 2000; ++time) {
        std::fill(y.begin(), y.end(), 0.0f);
        cpu::multiply(kRows, kWidth, kWidth, 1, {x.data(), kWidth}, {w.data(), kWidth, cpu::Form::transposed},
                      0, y.data(), kWidth);
        right = right && std::all_of(y.begin(), y.end(), [](float sum) { return sum == kWidth; });
    }
    over = true;
    sender.join();
    fprintf(stderr, right && stop_signal() == SIGUSR1 ? "all is right\n" : "something is wrong\n");
    exit(0);
}

TEST(StopSignals, DisturbNoMatrixProduct) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(multiply_under_signals(), ::testing::ExitedWithCode(0), "all is right");
}

}  // namespace
}  // namespace dp::trainer
