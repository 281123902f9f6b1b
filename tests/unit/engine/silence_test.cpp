// SPDX-License-Identifier: Apache-2.0
#include "engine/silence.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace dp {
namespace {

using Peers = std::vector<Silence::Peer>;

// Checks as a loop would, up to and with `end`; what was said on the way.
Silence::News pass(Silence& silence, Time end) {
    Silence::News all;
    while (silence.next_check() && *silence.next_check() <= end) {
        const auto news = silence.check(*silence.next_check());
        all.suspected.insert(all.suspected.end(), news.suspected.begin(), news.suspected.end());
        all.dead.insert(all.dead.end(), news.dead.begin(), news.dead.end());
    }
    return all;
}

TEST(Silence, WhoBeatsIsNeverSuspected) {
    Silence silence{Time(30000)};
    silence.watch(1, Time(0));
    for (Time now{0}; now < Time(60000); now += kBeat) {
        const auto news = pass(silence, now);
        EXPECT_TRUE(news.suspected.empty() && news.dead.empty());
        EXPECT_FALSE(silence.heard(1, now));
    }
}

TEST(Silence, IsNamedWithinASecondOnceAndTakenBack) {
    Silence silence{Time(30000)};
    for (Silence::Peer peer : {1u, 2u}) silence.watch(peer, Time(0));
    for (Time now{0}; now <= Time(1000); now += kBeat) {
        EXPECT_TRUE(pass(silence, now).suspected.empty());
        silence.heard(1, now);
        silence.heard(2, now);
    }
    // From here on the second is silent.
    Peers suspected;
    for (Time now{1250}; now <= Time(2000); now += kBeat) {
        for (auto peer : pass(silence, now).suspected) suspected.push_back(peer);
        silence.heard(1, now);
    }
    EXPECT_EQ(suspected, Peers{2});
    EXPECT_EQ(silence.heard(2, Time(2100)), Time(1100));
    EXPECT_FALSE(silence.heard(2, Time(2200)));
}

TEST(Silence, ItIsLookedAtWithTheBeatsAndWhenItGetsTooLong) {
    Silence silence{Time(5000)};
    silence.watch(1, Time(0));
    for (Time now = kBeat; now <= Time(1000); now += kBeat) {
        EXPECT_EQ(silence.next_check(), now);
        silence.check(now);
        silence.heard(1, now + Time(10));
    }
    // Nothing after 1010.
    std::vector<Time> checks;
    while (silence.next_check()) {
        checks.push_back(*silence.next_check());
        silence.check(checks.back());
    }
    auto looks_at = [&](Time time) { return std::find(checks.begin(), checks.end(), time) != checks.end(); };
    EXPECT_TRUE(looks_at(Time(1010) + kSilent));
    EXPECT_EQ(checks.back(), Time(1010 + 5000));
    EXPECT_LE(checks.size(), 5000 / kBeat.count() + 2);
}

TEST(Silence, LongEnoughIsADeath) {
    Silence silence{Time(5000)};
    silence.watch(7, Time(0));
    EXPECT_TRUE(pass(silence, Time(4990)).dead.empty());
    EXPECT_EQ(pass(silence, Time(5050)).dead, Peers{7});
    EXPECT_FALSE(silence.next_check());
    EXPECT_FALSE(silence.heard(7, Time(5100)));
}

TEST(Silence, TimeThatThisSideSleptCountsForNobody) {
    Silence silence{Time(5000)};
    silence.watch(7, Time(0));
    pass(silence, Time(200));
    // The step is suspended for a minute; nobody could speak or listen.
    const auto news = silence.check(Time(60200));
    EXPECT_TRUE(news.suspected.empty());
    EXPECT_TRUE(news.dead.empty());
    // Silence that goes on is one.
    EXPECT_EQ(pass(silence, Time(61000)).suspected, Peers{7});
}

TEST(Silence, WhoHasLeftIsNotListenedFor) {
    Silence silence{Time(5000)};
    silence.watch(7, Time(0));
    silence.forget(7);
    EXPECT_FALSE(silence.next_check());
    silence.watch(8, Time(100000));
    EXPECT_EQ(silence.next_check(), Time(100000) + kBeat);
    EXPECT_TRUE(silence.check(Time(100050)).suspected.empty());
}

}  // namespace
}  // namespace dp
