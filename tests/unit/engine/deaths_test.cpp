// SPDX-License-Identifier: Apache-2.0
//
// What the broker does with a death before it is told: held back, awaited, told with others.
#include <gtest/gtest.h>

#include <csignal>

#include "engine/deaths.hpp"
#include "engine/notices.hpp"

namespace dp {
namespace {

constexpr int kCode3 = 3 << 8;  // as a wait status

Death death(uint32_t rank, GracePeriod grace = kBroken) {
    return {"rank " + std::to_string(rank), grace, {rank}};
}

std::vector<std::string> reasons(const std::vector<Death>& deaths) {
    std::vector<std::string> out;
    for (const Death& one : deaths) out.push_back(one.reason);
    return out;
}

TEST(HeldDeaths, APoliteSignalIsHeldAndWhatFollowsFromItWaitsWithIt) {
    HeldDeaths held;
    EXPECT_FALSE(held.next_deadline());
    EXPECT_TRUE(held.hold_exit(death(1, kTerminated), SIGTERM, Time(1000)));
    EXPECT_TRUE(held.hold_exit(death(2, kFailed), kCode3, Time(1100)));
    EXPECT_FALSE(held.hold_exit(death(3), SIGSEGV, Time(1100))) << "it did not leave by itself";
    EXPECT_EQ(held.next_deadline(), Time(1000) + kPoliteDelay);
    EXPECT_TRUE(held.due(Time(1299)).empty());
    EXPECT_EQ(reasons(held.due(Time(1300))), (std::vector<std::string>{"rank 1", "rank 2"}));
    EXPECT_FALSE(held.next_deadline());
}

TEST(HeldDeaths, ALostNodeThatIsHeldIsTheCauseOfAnExitAfterIt) {
    HeldDeaths held;
    held.hold(death(8), Time(100));
    EXPECT_FALSE(held.hold_exit(death(1, kFailed), kCode3, Time(50)));
    EXPECT_EQ(reasons(held.take_all()), std::vector<std::string>{"rank 8"});
    EXPECT_FALSE(held.hold_exit(death(1, kFailed), kCode3, Time(60)));
}

TEST(VanishedRanks, AreGivenUpWhereNoExitFollows) {
    VanishedRanks vanished;
    vanished.add(1, Time(0));
    vanished.add(2, Time(10));
    EXPECT_EQ(vanished.next_deadline(), kExitFollows);
    EXPECT_TRUE(vanished.remove(1));
    EXPECT_FALSE(vanished.remove(1));
    vanished.add(1, Time(20));  // it had come back, and is gone again
    EXPECT_TRUE(vanished.due(kExitFollows).empty());
    EXPECT_EQ(vanished.due(kExitFollows + Time(10)), std::vector<uint32_t>{2});
    EXPECT_EQ(vanished.due(kExitFollows + Time(20)), std::vector<uint32_t>{1});
    EXPECT_FALSE(vanished.next_deadline());
}

TEST(DeathReports, TheFirstIsToldAtOnceAndTheOthersTogether) {
    const std::vector<std::string> hosts{"gpu0"};
    Membership members(8, 1, hosts);
    DeathReports reports;
    EXPECT_FALSE(reports.take(members, Time(1000)));
    EXPECT_EQ(reports.told().reason(), "");
    reports.add(death(1));
    EXPECT_EQ(reports.take(members, Time(1000))->reason(), "rank 1");
    for (uint32_t rank : {5u, 2u}) reports.add(death(rank));
    EXPECT_FALSE(reports.take(members, Time(1010)));
    EXPECT_EQ(reports.next_deadline(), Time(1000) + kDeathsTogether);
    const auto others = reports.take(members, Time(1000) + kDeathsTogether);
    ASSERT_TRUE(others);
    EXPECT_EQ(others->reason(), "ranks 2,5 (gpu0) died, too; first rank 5");
    EXPECT_EQ(others->ranks_size(), 2);
    EXPECT_EQ(reports.told().reason(), "rank 1");
    EXPECT_EQ(reports.told().ranks_size(), 3);
    EXPECT_FALSE(reports.next_deadline());
}

TEST(StoppedRanks, OfAboutTheSameTimeAreNamedTogether) {
    StoppedRanks stopped;
    stopped.note(7, true, Time(0));
    stopped.note(3, true, Time(50));
    stopped.note(4, false, Time(60));
    EXPECT_EQ(stopped.next_deadline(), kStoppedTogether);
    EXPECT_FALSE(stopped.take(kStoppedTogether - Time(1)));
    const auto notice = stopped.take(kStoppedTogether);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->stopped, (std::vector<uint32_t>{3, 7}));
    EXPECT_EQ(notice->continued, std::vector<uint32_t>{4});
    EXPECT_FALSE(stopped.next_deadline());
}

}  // namespace
}  // namespace dp
