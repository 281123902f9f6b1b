// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/node_barrier.hpp"

#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

namespace dp::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::Each;
using ::testing::HasSubstr;

std::string outcome_of(const Result<void>& wait) {
    return wait ? "passed" : wait.error().message;
}

TEST(NodeBarrier, NobodyPassesBeforeAllHaveCome) {
    constexpr std::uint32_t kRanks = 5;
    constexpr int kRounds = 3000;
    SharedBarrier shared{};
    std::vector<std::atomic<int>> rounds(kRanks);
    std::atomic<int> early = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            NodeBarrier barrier(shared, kRanks, minutes(1));
            for (int round = 1; round <= kRounds; ++round) {
                rounds[rank] = round;
                if (!barrier.wait()) ++early;
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
    std::vector<std::string> outcomes(2);
    std::vector<std::thread> threads;
    for (auto& outcome : outcomes)
        threads.emplace_back([&] { outcome = outcome_of(NodeBarrier(shared, 3, minutes(1)).wait()); });
    std::this_thread::sleep_for(milliseconds(50));
    NodeBarrier third(shared, 3, minutes(1));
    third.break_off();
    for (auto& thread : threads) thread.join();
    outcomes.push_back(outcome_of(third.wait()));
    EXPECT_THAT(outcomes, Each(HasSubstr("another rank has died")));
}

TEST(NodeBarrier, WhoLeavesAfterTheLastRoundTakesItFromNobody) {
    for (int times = 0; times < 500; ++times) {
        SharedBarrier shared{};
        std::string slow;
        std::thread other([&] { slow = outcome_of(NodeBarrier(shared, 2, minutes(1)).wait()); });
        while (shared.arrived == 0) std::this_thread::yield();  // it waits, or is about to
        NodeBarrier first(shared, 2, minutes(1));
        EXPECT_TRUE(first.wait());
        first.break_off();
        other.join();
        EXPECT_EQ(slow, "passed");
    }
}

TEST(NodeBarrier, WaitsNoLongerThanItsTimeout) {
    SharedBarrier shared{};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(outcome_of(NodeBarrier(shared, 2, milliseconds(60)).wait()), HasSubstr("waited"));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(60));
}

TEST(NodeBarrier, CountsBeyondItsNumbers) {
    SharedBarrier shared{};
    shared.state = 0xFFFFFFFCu;  // two rounds before it begins anew
    std::thread other([&] {
        NodeBarrier barrier(shared, 2, minutes(1));
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(barrier.wait());
    });
    NodeBarrier barrier(shared, 2, minutes(1));
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(barrier.wait());
    other.join();
    EXPECT_EQ(shared.state, 6u);
}

}  // namespace
}  // namespace dp::trainer
