// SPDX-License-Identifier: Apache-2.0
#include "nccl/abort_guard.hpp"

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

}  // namespace
}  // namespace dp
