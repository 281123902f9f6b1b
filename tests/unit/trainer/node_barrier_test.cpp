// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_barrier.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace dp::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using Outcome = NodeBarrier::Outcome;

TEST(NodeBarrier, NobodyPassesBeforeAllHaveCome) {
    constexpr std::uint32_t kRanks = 5;
    constexpr int kRounds = 3000;
    SharedBarrier shared{};
    std::vector<std::atomic<int>> rounds(kRanks);
    std::atomic<int> early = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            NodeBarrier barrier(shared, kRanks);
            for (int round = 1; round <= kRounds; ++round) {
                rounds[rank] = round;
                if (barrier.wait(minutes(1)) != Outcome::passed) ++early;
                for (const auto& other : rounds)
                    if (other < round || other > round + 1) ++early;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(early, 0);
}

TEST(NodeBarrier, BreakingItOffEndsTheWaitsOfAllForEver) {
    SharedBarrier shared{};
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (auto& outcome : outcomes)
        threads.emplace_back([&] { outcome = NodeBarrier(shared, 3).wait(minutes(1)); });
    std::this_thread::sleep_for(milliseconds(50));
    NodeBarrier third(shared, 3);
    third.break_off();
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(outcomes, (std::vector<Outcome>{Outcome::broken, Outcome::broken}));
    EXPECT_EQ(third.wait(minutes(1)), Outcome::broken);
}

TEST(NodeBarrier, WhoLeavesAfterTheLastRoundTakesItFromNobody) {
    for (int times = 0; times < 500; ++times) {
        SharedBarrier shared{};
        Outcome slow = Outcome::broken;
        std::thread other([&] { slow = NodeBarrier(shared, 2).wait(minutes(1)); });
        while (shared.arrived == 0) std::this_thread::yield();  // it waits, or is about to
        NodeBarrier first(shared, 2);
        EXPECT_EQ(first.wait(minutes(1)), Outcome::passed);
        first.break_off();
        other.join();
        EXPECT_EQ(slow, Outcome::passed);
    }
}

TEST(NodeBarrier, WaitsNoLongerThanItIsPatient) {
    SharedBarrier shared{};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(NodeBarrier(shared, 2).wait(milliseconds(60)), Outcome::too_late);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(60));
}

TEST(NodeBarrier, CountsBeyondItsNumbers) {
    SharedBarrier shared{};
    shared.state = 0xFFFFFFFCu;  // two rounds before it begins anew
    std::thread other([&] {
        NodeBarrier barrier(shared, 2, 0x7FFFFFFEu);
        for (int i = 0; i < 5; ++i) EXPECT_EQ(barrier.wait(minutes(1)), Outcome::passed);
    });
    NodeBarrier barrier(shared, 2, 0x7FFFFFFEu);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(barrier.wait(minutes(1)), Outcome::passed);
    other.join();
    EXPECT_EQ(shared.state, 6u);
}

}  // namespace
}  // namespace dp::trainer
