// SPDX-License-Identifier: Apache-2.0
#include "record/node_ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

namespace dp {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A node with one task, seen once a second.
class NodeLedgerTest : public testing::Test {
 protected:
    NodeLedger ledger{1, std::chrono::seconds(30), 0};
    TaskSeen task{.has_rank = true};
    int64_t now = 0;

    void pass(int seconds) {
        for (int i = 0; i < seconds; ++i) {
            now += kSecond;
            ledger.look({&task, 1}, now);
        }
    }
    // In each second this much of a phase, in ms.
    void work(int seconds, size_t phase, int64_t ms = 1000) {
        for (int i = 0; i < seconds; ++i) {
            if (!task.phases) task.phases.emplace();
            (*task.phases)[phase] += ms * 1'000'000;
            pass(1);
        }
    }
    // In ms, what is not zero.
    std::map<std::string, int64_t> spent() const {
        std::map<std::string, int64_t> out;
        for (size_t what = 0; what < kSpent; ++what)
            if (const auto ms = static_cast<int64_t>(ledger.spent()[what] * 1000 + 0.5); ms > 0)
                out[kSpentWords[what].name] = ms;
        return out;
    }
    using Times = std::map<std::string, int64_t>;
};

TEST_F(NodeLedgerTest, WhatTheProgramSays) {
    work(4, 1);
    work(2, 3, 700);
    work(1, 2);
    EXPECT_EQ(spent(),
              (Times{{"compute", 4000}, {"communication", 1400}, {"load", 1000}, {"unlabelled", 600}}));
}

TEST_F(NodeLedgerTest, TheTimeBeforeTheFirstPhaseIsTheStart) {
    pass(10);
    EXPECT_EQ(spent(), Times{}) << "not known yet";
    work(1, 1, 250);
    EXPECT_EQ(spent(), (Times{{"start", 10750}, {"compute", 250}}));
    work(1, 1, 250);
    EXPECT_EQ(spent(), (Times{{"start", 10750}, {"compute", 500}, {"unlabelled", 750}}));
}

TEST_F(NodeLedgerTest, AProgramWithoutPhasesIsUnlabelled) {
    pass(31);
    EXPECT_EQ(spent(), (Times{{"unlabelled", 31000}}));
    pass(1);
    EXPECT_EQ(spent(), (Times{{"unlabelled", 32000}}));
    work(1, 1);
    EXPECT_EQ(spent(), (Times{{"unlabelled", 32000}, {"compute", 1000}}));
}

TEST_F(NodeLedgerTest, AShortOneIsUnlabelledAtItsEnd) {
    pass(5);
    task.has_exited = true;
    pass(2);
    EXPECT_EQ(spent(), (Times{{"unlabelled", 5000}, {"ended", 2000}}));
}

TEST_F(NodeLedgerTest, ARestartLastsUntilTheNextFirstPhase) {
    work(3, 1);
    task.is_ending = true;
    pass(2);
    task = {.has_rank = true, .generation = 1};
    pass(4);
    work(1, 1);
    EXPECT_EQ(spent(), (Times{{"compute", 4000}, {"restart", 6000}}));
}

TEST_F(NodeLedgerTest, ASpareThatIsNeededRestarts) {
    task.has_rank = false;
    NodeLedger both(2, std::chrono::seconds(30), 0);
    TaskSeen tasks[2] = {{.has_rank = true, .phases = PhaseTimes{0, kSecond}}, {}};
    both.look(tasks, kSecond);
    tasks[0] = {.has_rank = true, .generation = 1, .connection = 2, .phases = PhaseTimes{0, kSecond}};
    tasks[1] = {.has_rank = true, .generation = 1};
    both.look(tasks, 2 * kSecond);
    tasks[1].phases = PhaseTimes{0, kSecond};
    both.look(tasks, 3 * kSecond);
    EXPECT_DOUBLE_EQ(both.spent()[static_cast<size_t>(Spent::spare)], 1);
    EXPECT_DOUBLE_EQ(both.spent()[static_cast<size_t>(Spent::restart)], 1);
}

TEST_F(NodeLedgerTest, AHangIsNoCommunication) {
    work(2, 1);
    task.is_still = true;
    work(5, 3);
    task.is_still = false;
    work(1, 3);
    EXPECT_EQ(spent(), (Times{{"compute", 2000}, {"hang", 5000}, {"communication", 1000}}));
}

TEST_F(NodeLedgerTest, NoPageMakesMoreTimeThanThereWas) {
    work(1, 1, 900'000);
    work(1, 1, 1000);
    task.phases = PhaseTimes{};  // less than before
    pass(1);
    EXPECT_EQ(spent(), (Times{{"compute", 2000}, {"unlabelled", 1000}}));
}

TEST_F(NodeLedgerTest, AllTimeIsCountedOnce) {
    pass(3);
    work(2, 1, 500);
    task.is_still = true;
    pass(3);
    task.is_still = false;
    task.is_ending = true;
    pass(1);
    task = {.has_rank = true, .generation = 1, .connection = 7};
    pass(2);
    work(2, 4, 100);
    task.connection = 0;
    task.phases.reset();
    pass(1);
    task.has_exited = true;
    pass(2);
    EXPECT_NEAR(std::accumulate(ledger.spent().begin(), ledger.spent().end(), 0.0), 16, 1e-6);
}

}  // namespace
}  // namespace dp
