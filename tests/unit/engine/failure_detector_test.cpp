// SPDX-License-Identifier: Apache-2.0
#include "engine/failure_detector.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace dp {
namespace {

using Peers = std::vector<FailureDetector::Peer>;

// Checks as a loop would, up to and with `end`; what was said on the way.
FailureDetector::News pass(FailureDetector& detector, Time end) {
    FailureDetector::News all;
    while (detector.next_check() && *detector.next_check() <= end) {
        const auto news = detector.check(*detector.next_check());
        all.suspected.insert(all.suspected.end(), news.suspected.begin(), news.suspected.end());
        all.dead.insert(all.dead.end(), news.dead.begin(), news.dead.end());
    }
    return all;
}

TEST(FailureDetector, WhoseHeartbeatsComeIsNeverSuspected) {
    FailureDetector detector{Time(30000)};
    detector.watch(1, Time(0));
    for (Time now{0}; now < Time(60000); now += kHeartbeat) {
        const auto news = pass(detector, now);
        EXPECT_TRUE(news.suspected.empty() && news.dead.empty());
        EXPECT_FALSE(detector.heard(1, now));
    }
}

TEST(FailureDetector, IsNamedWithinASecondOnceAndTakenBack) {
    FailureDetector detector{Time(30000)};
    for (FailureDetector::Peer peer : {1u, 2u}) detector.watch(peer, Time(0));
    for (Time now{0}; now <= Time(1000); now += kHeartbeat) {
        EXPECT_TRUE(pass(detector, now).suspected.empty());
        detector.heard(1, now);
        detector.heard(2, now);
    }
    // From here on the second is silent.
    Peers suspected;
    for (Time now{1250}; now <= Time(2000); now += kHeartbeat) {
        for (auto peer : pass(detector, now).suspected) suspected.push_back(peer);
        detector.heard(1, now);
    }
    EXPECT_EQ(suspected, Peers{2});
    EXPECT_EQ(detector.heard(2, Time(2100)), Time(1100));
    EXPECT_FALSE(detector.heard(2, Time(2200)));
}

TEST(FailureDetector, ItIsLookedAtWithTheHeartbeatsAndWhenItGetsTooLong) {
    FailureDetector detector{Time(5000)};
    detector.watch(1, Time(0));
    for (Time now = kHeartbeat; now <= Time(1000); now += kHeartbeat) {
        EXPECT_EQ(detector.next_check(), now);
        detector.check(now);
        detector.heard(1, now + Time(10));
    }
    // Nothing after 1010.
    std::vector<Time> checks;
    while (detector.next_check()) {
        checks.push_back(*detector.next_check());
        detector.check(checks.back());
    }
    auto looks_at = [&](Time time) { return std::find(checks.begin(), checks.end(), time) != checks.end(); };
    EXPECT_TRUE(looks_at(Time(1010) + kSilent));
    EXPECT_EQ(checks.back(), Time(1010 + 5000));
    EXPECT_LE(checks.size(), 5000 / kHeartbeat.count() + 2);
}

TEST(FailureDetector, LongEnoughIsADeath) {
    FailureDetector detector{Time(5000)};
    detector.watch(7, Time(0));
    EXPECT_TRUE(pass(detector, Time(4990)).dead.empty());
    EXPECT_EQ(pass(detector, Time(5050)).dead, Peers{7});
    EXPECT_FALSE(detector.next_check());
    EXPECT_FALSE(detector.heard(7, Time(5100)));
}

TEST(FailureDetector, TimeThatThisSideSleptCountsForNobody) {
    FailureDetector detector{Time(5000)};
    detector.watch(7, Time(0));
    pass(detector, Time(200));
    // The step is suspended for a minute; nobody could speak or listen.
    const auto news = detector.check(Time(60200));
    EXPECT_TRUE(news.suspected.empty());
    EXPECT_TRUE(news.dead.empty());
    // Silence that goes on is one.
    EXPECT_EQ(pass(detector, Time(61000)).suspected, Peers{7});
}

TEST(FailureDetector, WhoHasLeftIsNotListenedFor) {
    FailureDetector detector{Time(5000)};
    detector.watch(7, Time(0));
    detector.forget(7);
    EXPECT_FALSE(detector.next_check());
    detector.watch(8, Time(100000));
    EXPECT_EQ(detector.next_check(), Time(100000) + kHeartbeat);
    EXPECT_TRUE(detector.check(Time(100050)).suspected.empty());
}

}  // namespace
}  // namespace dp
