// SPDX-License-Identifier: Apache-2.0
#include "engine/search_pace.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dp {
namespace {

struct Round {
    Time begins;
    size_t width;
};

std::vector<Round> rounds_until(SearchPace pace, Time end) {
    std::vector<Round> found;
    for (Time now{0}; now < end; now += pace.rest()) found.push_back({now, pace.width()});
    return found;
}

TEST(SearchPace, TheFirstPortAloneThenTwiceAsFarEachRound) {
    SearchPace pace(1, 16);
    std::vector<int> begins;
    std::vector<size_t> widths;
    for (const Round& r : rounds_until(pace, Time(700))) {
        begins.push_back(static_cast<int>(r.begins.count()));
        widths.push_back(r.width);
    }
    EXPECT_EQ(begins, (std::vector<int>{0, 2, 4, 6, 9, 13, 19, 28, 42, 63, 94, 141, 211, 316, 474}));
    EXPECT_EQ(widths, (std::vector<size_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 16}));
}

TEST(SearchPace, TriesEveryAddressOfTheFirstPort) {
    for (const Round& r : rounds_until(SearchPace(3, 48), Time(100))) EXPECT_EQ(r.width, 3u);
}

TEST(SearchPace, NeverMoreThanThereIs) {
    for (const Round& r : rounds_until(SearchPace(1, 5), Time(60'000))) EXPECT_LE(r.width, 5u);
    EXPECT_EQ(SearchPace(0, 0).width(), 0u);
}

TEST(SearchPace, IsNeverMoreThanHalfAsLateAgainNorASecond) {
    SearchPace pace(1, 16);
    Time waited{0};
    for (int i = 0; i < 1000; ++i) {
        const Time rest = pace.rest();
        EXPECT_LE(rest, std::max(kFirstPause, std::min(waited / 2, kLongestPause)));
        EXPECT_GE(rest, kFirstPause);
        waited += rest;
    }
    EXPECT_EQ(pace.rest(), kLongestPause);
}

TEST(SearchPace, RestsLongerWhereAnAnswerMayCome) {
    SearchPace pace(1, 16);
    EXPECT_EQ(pace.rest(Time(20)), Time(20));
    EXPECT_EQ(pace.rest(), Time(10));
    EXPECT_EQ(pace.rest(Time(20)), Time(20));
    EXPECT_EQ(pace.rest(Time(20)), Time(25));
}

}  // namespace
}  // namespace dp
