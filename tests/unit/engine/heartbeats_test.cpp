// SPDX-License-Identifier: Apache-2.0
#include "engine/heartbeats.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace dp {
namespace {

using Peers = std::vector<Heartbeats::Peer>;

struct Said {
    Peers silent, speak_again, dead;
    Time longest{};  // of the silences that are over
};

// Checks as a loop would, up to and with `end`; what was said on the way.
Said pass(Heartbeats& heartbeats, Time end) {
    Said all;
    while (heartbeats.next_deadline() && *heartbeats.next_deadline() <= end) {
        const auto news = heartbeats.check(*heartbeats.next_deadline());
        all.dead.insert(all.dead.end(), news.dead.begin(), news.dead.end());
        if (!news.notice) continue;
        all.silent.insert(all.silent.end(), news.notice->silent.begin(), news.notice->silent.end());
        for (auto peer : news.notice->speak_again) all.speak_again.push_back(peer);
        all.longest = std::max(all.longest, news.notice->longest);
    }
    return all;
}

TEST(Heartbeats, WhoseComeIsNeverSuspected) {
    Heartbeats heartbeats{Time(30000)};
    heartbeats.watch(1, Time(0));
    for (Time now{0}; now < Time(60000); now += kHeartbeat) {
        const Said said = pass(heartbeats, now);
        EXPECT_TRUE(said.silent.empty() && said.speak_again.empty() && said.dead.empty());
        heartbeats.heard(1, now);
        EXPECT_EQ(heartbeats.silent_for(1, now), Time(0));
    }
}

TEST(Heartbeats, WhoIsSilentIsNamedWithinASecondOnceAndTakenBack) {
    Heartbeats heartbeats{Time(30000)};
    for (Heartbeats::Peer peer : {1u, 2u}) heartbeats.watch(peer, Time(0));
    for (Time now{0}; now <= Time(1000); now += kHeartbeat) {
        EXPECT_TRUE(pass(heartbeats, now).silent.empty());
        heartbeats.heard(1, now);
        heartbeats.heard(2, now);
    }
    // From here on the second is silent.
    Peers silent;
    for (Time now{1250}; now <= Time(2000); now += kHeartbeat) {
        for (auto peer : pass(heartbeats, now).silent) silent.push_back(peer);
        heartbeats.heard(1, now);
    }
    EXPECT_EQ(silent, Peers{2});
    EXPECT_EQ(heartbeats.silent_for(2, Time(2050)), Time(1050));
    heartbeats.heard(2, Time(2100));
    heartbeats.heard(2, Time(2200));
    heartbeats.heard(1, Time(2200));
    const Said said = pass(heartbeats, Time(2900));
    EXPECT_EQ(said.speak_again, Peers{2});
    EXPECT_EQ(said.longest, Time(1100));
    EXPECT_TRUE(said.silent.empty());
}

TEST(Heartbeats, AreSentInTimeAndSilenceIsSeenInBetween) {
    Heartbeats heartbeats{Time(5000)};
    heartbeats.watch(1, Time(0));
    for (Time now = kHeartbeat; now <= Time(1000); now += kHeartbeat) {
        EXPECT_EQ(heartbeats.next_deadline(), now);
        EXPECT_TRUE(heartbeats.check(now).send);
        heartbeats.heard(1, now + Time(10));
    }
    // Nothing after 1010.
    std::vector<Time> checks;
    Peers dead;
    while (heartbeats.next_deadline()) {
        checks.push_back(*heartbeats.next_deadline());
        const auto news = heartbeats.check(checks.back());
        EXPECT_EQ(news.send, checks.back() % kHeartbeat == Time(0)) << checks.back().count();
        dead.insert(dead.end(), news.dead.begin(), news.dead.end());
    }
    EXPECT_NE(std::find(checks.begin(), checks.end(), Time(1010) + kSilent), checks.end());
    EXPECT_EQ(checks.back(), Time(1010 + 5000));
    EXPECT_EQ(dead, Peers{1});
    EXPECT_LE(checks.size(), 5000 / kHeartbeat.count() + 3);
}

TEST(Heartbeats, LongEnoughWithoutOneIsADeath) {
    Heartbeats heartbeats{Time(5000)};
    heartbeats.watch(7, Time(0));
    EXPECT_TRUE(pass(heartbeats, Time(4990)).dead.empty());
    EXPECT_EQ(pass(heartbeats, Time(5050)).dead, Peers{7});
    EXPECT_FALSE(heartbeats.next_deadline());
    heartbeats.heard(7, Time(5100));
    EXPECT_FALSE(heartbeats.next_deadline());
}

TEST(Heartbeats, TimeThatThisSideSleptCountsForNobody) {
    Heartbeats heartbeats{Time(5000)};
    heartbeats.watch(7, Time(0));
    pass(heartbeats, Time(200));
    // The step is suspended for a minute; nobody could speak or listen.
    EXPECT_TRUE(heartbeats.check(Time(60200)).dead.empty());
    EXPECT_EQ(heartbeats.silent_for(7, Time(60200)), Time(0));
    // Silence that goes on is one.
    EXPECT_EQ(pass(heartbeats, Time(61000)).silent, Peers{7});
}

TEST(Heartbeats, WhoHasLeftIsNotListenedFor) {
    Heartbeats heartbeats{Time(5000)};
    heartbeats.watch(7, Time(0));
    heartbeats.forget(7);
    EXPECT_FALSE(heartbeats.next_deadline());
    heartbeats.watch(8, Time(100000));
    EXPECT_EQ(heartbeats.next_deadline(), Time(100000) + kHeartbeat);
    EXPECT_FALSE(heartbeats.check(Time(100050)).send);
}

}  // namespace
}  // namespace dp
