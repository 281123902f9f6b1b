// SPDX-License-Identifier: Apache-2.0
#include "record/spent.hpp"

#include <gtest/gtest.h>

namespace dp {
namespace {

TEST(Spent, IsSaidWithTheLargestFirst) {
    SpentTimes spent{};
    EXPECT_EQ(spent_in_words(spent), "0 s");
    of(spent, Spent::load) = 16;
    of(spent, Spent::compute) = 71;
    of(spent, Spent::start) = 12.7;
    of(spent, Spent::idle) = 0.3;
    EXPECT_EQ(spent_in_words(spent), "100 s: compute 71 %, load 16 %, start 13 %");
    of(spent, Spent::communication) = 100;
    EXPECT_EQ(spent_in_words(spent),
              "3 min: communication and waiting 50 %, compute 36 %, load 8 %, start 6 %");
    of(spent, Spent::waiting) = 7200;
    EXPECT_EQ(spent_in_words(spent), "2.1 h: waiting for others 97 %, communication 1 %, compute 1 %");
}

TEST(Spent, WordsAreDistinct) {
    for (size_t i = 0; i < kSpent; ++i)
        for (size_t j = 0; j < i; ++j) {
            EXPECT_STRNE(kSpentWords[i].name, kSpentWords[j].name);
            EXPECT_NE(kSpentWords[i].letter, kSpentWords[j].letter);
        }
}

}  // namespace
}  // namespace dp
