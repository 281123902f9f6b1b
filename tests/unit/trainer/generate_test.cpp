// SPDX-License-Identifier: Apache-2.0
#include "trainer/generate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace dp::trainer {
namespace {

std::map<std::size_t, int> drawn(const std::vector<float>& logits, double temperature, std::int64_t top_k) {
    Random random(3, 0);
    std::map<std::size_t, int> times;
    for (int i = 0; i < 10'000; ++i) ++times[pick_token(logits, temperature, top_k, random)];
    return times;
}

TEST(PickToken, DrawsByTheProbabilitiesOfTheLogits) {
    const std::vector<float> logits{std::log(1.0f), std::log(6.0f), std::log(3.0f)};
    auto times = drawn(logits, 1, 0);
    EXPECT_NEAR(times[0], 1000, 150);
    EXPECT_NEAR(times[1], 6000, 250);
    EXPECT_NEAR(times[2], 3000, 250);
    times = drawn(logits, 0.5, 0);  // squares: 1, 36, 9
    EXPECT_NEAR(times[0], 10'000 / 46, 80);
    EXPECT_NEAR(times[1], 360'000 / 46, 250);
}

TEST(PickToken, TakesNoneButTheLikeliestWhereThatIsAsked) {
    const std::vector<float> logits{0, 2, 1, 2};
    EXPECT_EQ(drawn(logits, 0, 0), (std::map<std::size_t, int>{{1, 10'000}}));
    EXPECT_EQ(drawn(logits, 1, 1), (std::map<std::size_t, int>{{1, 10'000}}));
    const auto two = drawn(logits, 1, 2);
    EXPECT_EQ(two.size(), 2u);
    EXPECT_NEAR(two.at(3), 5000, 250);
    EXPECT_EQ(drawn(logits, 1, 99).size(), 4u) << "more than there are is all";
}

TEST(PickToken, HugeLogitsAreNoTrouble) {
    EXPECT_EQ(drawn({1e30f, -1e30f, 0}, 1e-3, 0), (std::map<std::size_t, int>{{0, 10'000}}));
}

}  // namespace
}  // namespace dp::trainer
