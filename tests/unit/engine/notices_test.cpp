// SPDX-License-Identifier: Apache-2.0
#include "engine/notices.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

using Peers = std::vector<SilenceNotices::Peer>;

// The notice that is due next, and when.
std::pair<Time, SilenceNotices::Notice> next(SilenceNotices& notices) {
    const Time at = notices.next_deadline().value_or(Time(-1));
    EXPECT_FALSE(notices.take(at - Time(1)));
    return {at, notices.take(at).value_or(SilenceNotices::Notice{})};
}

TEST(SilenceNotices, TheFirstIsSoonAndHasAllOfAboutThatTime) {
    SilenceNotices notices;
    EXPECT_FALSE(notices.next_deadline());
    notices.fell_silent(3, Time(5000));
    notices.fell_silent(1, Time(5060));
    const auto [at, notice] = next(notices);
    EXPECT_EQ(at, Time(5000) + kSilencesTogether);
    EXPECT_EQ(notice.silent, (Peers{1, 3}));
    EXPECT_TRUE(notice.speak_again.empty());
    EXPECT_FALSE(notices.next_deadline());
}

TEST(SilenceNotices, WhoSpeaksAgainIsToldWithTheLongestSilence) {
    SilenceNotices notices;
    notices.fell_silent(1, Time(5000));
    notices.fell_silent(2, Time(5000));
    next(notices);
    notices.speaks_again(1, Time(3000), Time(8000));
    notices.speaks_again(2, Time(4000), Time(8010));
    const auto [at, notice] = next(notices);
    EXPECT_EQ(at, Time(8000) + kSilencesTogether);
    EXPECT_EQ(notice.speak_again, (Peers{1, 2}));
    EXPECT_EQ(notice.longest, Time(4000));
}

TEST(SilenceNotices, WhatIsAsTheUserKnowsItIsNotToldAgain) {
    SilenceNotices notices;
    notices.fell_silent(1, Time(5000));
    next(notices);
    notices.speaks_again(1, Time(900), Time(5150));
    notices.fell_silent(1, Time(6000));
    EXPECT_FALSE(notices.next_deadline());
    // Silent only between two notices: over when the user hears of it.
    notices.fell_silent(2, Time(6010));
    notices.speaks_again(2, Time(850), Time(6050));
    const auto [at, notice] = next(notices);
    EXPECT_TRUE(notice.silent.empty());
    EXPECT_EQ(notice.speak_again, Peers{2});
}

TEST(SilenceNotices, WhoIsForgottenIsNotTold) {
    SilenceNotices notices;
    notices.fell_silent(1, Time(5000));
    notices.speaks_again(2, Time(850), Time(5000));
    notices.forget(1);
    notices.forget(2);
    EXPECT_FALSE(notices.next_deadline());
    EXPECT_FALSE(notices.take(Time(60000)));
}

TEST(SilenceNotices, GetRarerWhileManyNodesComeAndGo) {
    SilenceNotices notices;
    Time now(10000);
    std::vector<int64_t> pauses;
    for (int i = 0; i < 8; ++i) {
        notices.fell_silent(1, now);
        notices.fell_silent(2, now);
        notices.speaks_again(1, Time(900), now);
        notices.speaks_again(2, Time(900), now);
        const Time before = now;
        now = next(notices).first;
        pauses.push_back((now - before).count());
    }
    EXPECT_EQ(pauses, (std::vector<int64_t>{100, 1000, 2000, 4000, 8000, 16000, 32000, 32000}));
    // After a calm as long, as in the beginning.
    now += Time(70000);
    notices.fell_silent(1, now);
    EXPECT_EQ(next(notices).first, now + kSilencesTogether);
}

TEST(SilenceNotices, OfASingleNodeAreNeverLate) {
    SilenceNotices notices;
    Time now(10000);
    for (int i = 0; i < 20; ++i) {
        notices.fell_silent(1, now);
        EXPECT_EQ(next(notices).first, now + kSilencesTogether);
        notices.speaks_again(1, Time(900), now + Time(1100));
        EXPECT_EQ(next(notices).first, now + Time(1100) + kSilencesTogether);
        now += Time(2300);
    }
}

}  // namespace
}  // namespace dp
