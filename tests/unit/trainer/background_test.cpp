// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/background.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace dp::trainer {
namespace {

TEST(BackgroundTest, DoesOneThingAfterAnotherWhileTheCallerGoesOn) {
    Background background;
    std::promise<void> gate;
    std::vector<int> done;
    background.start([&, open = gate.get_future().share()]() -> Result<void> {
        open.wait();
        done.push_back(1);
        return {};
    });
    background.start([&]() -> Result<void> {
        done.push_back(2);
        return {};
    });
    gate.set_value();  // start() has come back although the first could not end
    EXPECT_TRUE(background.finish());
    EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

TEST(BackgroundTest, WhatComesAfterAFailureIsLeftOutUntilItIsTold) {
    Background background;
    std::atomic<int> later = 0;
    background.start([]() -> Result<void> { return fail(Fault::world, "gone"); });
    background.start([&]() -> Result<void> {
        ++later;
        return {};
    });
    const auto result = background.finish();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "gone");
    EXPECT_EQ(later, 0);
    background.start([&]() -> Result<void> {
        ++later;
        return {};
    });
    EXPECT_TRUE(background.finish());
    EXPECT_EQ(later, 1);
}

TEST(BackgroundTest, WhoeverWaitsIsToldOfWhatWasLeftOutToo) {
    for (int round = 0; round < 2000; ++round) {  // finish() often waits before the second is looked at
        Background background;
        background.start([]() -> Result<void> { return fail(Fault::world, "gone"); });
        background.start([]() -> Result<void> { return {}; });
        EXPECT_FALSE(background.finish());
    }
}

TEST(BackgroundTest, EndsWithoutDoingWhatStillWaits) {
    std::atomic<int> done = 0;
    std::promise<void> begun, gate;
    {
        Background background;
        background.start([&]() -> Result<void> {
            begun.set_value();
            gate.get_future().wait();
            ++done;
            return {};
        });
        for (int i = 0; i < 100; ++i)
            background.start([&]() -> Result<void> {
                ++done;
                return {};
            });
        begun.get_future().wait();
        std::thread opener([&] { gate.set_value(); });
        opener.detach();
    }
    EXPECT_LE(done, 101);
    EXPECT_GE(done, 1);
    EXPECT_TRUE(Background().finish()) << "nothing was ever started";
}

}  // namespace
}  // namespace dp::trainer
