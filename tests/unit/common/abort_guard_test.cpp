// SPDX-License-Identifier: Apache-2.0
#include "base/abort_guard.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace dp {
namespace {

using std::chrono::milliseconds;

TEST(AbortGuard, AbortsOnceAndOnlyBeforeTheRelease) {
    std::atomic<int> aborts = 0;
    AbortGuard guard([&] { ++aborts; }, [] { FAIL() << "gave up"; }, milliseconds(10000));
    guard.fire();
    guard.fire();
    EXPECT_FALSE(guard.release());
    EXPECT_EQ(aborts, 1);

    AbortGuard kept([&] { ++aborts; }, [] { FAIL() << "gave up"; }, milliseconds(10000));
    EXPECT_TRUE(kept.release());
    kept.fire();
    EXPECT_TRUE(kept.release());
    EXPECT_EQ(aborts, 1);
}

TEST(AbortGuard, WaitsForOneThatHasBegun) {
    std::atomic<bool> ended = false;
    AbortGuard guard(
        [&] {
            std::this_thread::sleep_for(milliseconds(50));
            ended = true;
        },
        [] { FAIL() << "gave up"; }, milliseconds(10000));
    guard.fire();
    EXPECT_FALSE(guard.release());
    EXPECT_TRUE(ended);
}

TEST(AbortGuard, GivesUpOnOneThatHangs) {
    std::promise<void> gave_up;
    std::promise<void> unblock;
    AbortGuard guard([&] { unblock.get_future().wait(); }, [&] { gave_up.set_value(); }, milliseconds(20));
    guard.fire();
    EXPECT_EQ(gave_up.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
    unblock.set_value();
}

TEST(AbortGuardDeathTest, EndsTheProcessWhoseAbortHangs) {
    std::atomic<int> aborts = 0;
    abort_or_exit(7, [&] { ++aborts; });
    EXPECT_EQ(aborts, 1);
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(abort_or_exit(
                    7, [] { std::this_thread::sleep_for(std::chrono::hours(1)); }, milliseconds(20)),
                testing::ExitedWithCode(1), "rank 7: NCCL did not end its communicator");
}

}  // namespace
}  // namespace dp
