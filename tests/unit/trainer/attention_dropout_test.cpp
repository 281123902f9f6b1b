// SPDX-License-Identifier: Apache-2.0
//
// Which weights attention's dropout keeps: as many as it should, of each place, and none because of another.
#include "trainer/devices/attention_dropout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace dp::trainer {
namespace {

constexpr std::int64_t kSequence = 200;

// All of a head's, 1 where it is kept.
std::vector<int> mask(const Attention& a, std::int64_t head) {
    const AttentionDropout dropout(a, head);
    std::vector<int> kept;
    for (std::int64_t query = 0; query < a.sequence; ++query)
        for (std::int64_t key = 0; key < a.sequence; ++key)
            kept.push_back(dropout.is_kept(query, key) ? 1 : 0);
    return kept;
}

TEST(AttentionDropout, KeepsThePartThatItShouldAtEachOfTheFourPlaces) {
    for (const float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
        const auto kept = mask({kSequence, 1, {rate, 3, 0}}, 0);
        double sums[4] = {}, counts[4] = {};
        for (std::int64_t i = 0; i < kSequence * kSequence; ++i) {
            const std::int64_t place = i / kSequence % 16 / 8 * 2 + i % kSequence % 16 / 8;
            sums[place] += kept[static_cast<std::size_t>(i)];
            ++counts[place];
        }
        for (int place = 0; place < 4; ++place) {  // within four deviations
            const double part = 1 - static_cast<double>(rate);
            EXPECT_NEAR(sums[place] / counts[place], part, 4 * std::sqrt(part * (1 - part) / counts[place]))
                << "rate " << rate << ", place " << place;
        }
    }
}

// Of neighbours, of those that share a hash, of other heads and of another key.
TEST(AttentionDropout, WhetherAWeightIsKeptSaysNothingOfAnother) {
    const Attention a{kSequence, 2, {0.5f, 3, 0}};
    const auto kept = mask(a, 1), other_head = mask(a, 0), other_key = mask({kSequence, 2, {0.5f, 4, 0}}, 1);
    const auto agreement = [&](const std::vector<int>& others, std::int64_t queries, std::int64_t keys) {
        double same = 0, count = 0;
        for (std::int64_t query = 0; query + queries < kSequence; ++query)
            for (std::int64_t key = 0; key + keys < kSequence; ++key) {
                const auto one = static_cast<std::size_t>(query * kSequence + key),
                           other = static_cast<std::size_t>((query + queries) * kSequence + key + keys);
                same += kept[one] == others[other] ? 1 : 0;
                ++count;
            }
        return std::abs(same / count - 0.5) * std::sqrt(count) / 0.5;  // in deviations
    };
    for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {1, 0}, {1, 1}, {0, 8}, {8, 0}, {8, 8}, {0, 16}, {16, 0}})
        EXPECT_LT(agreement(kept, queries, keys), 4) << queries << " queries and " << keys << " keys further";
    EXPECT_LT(agreement(other_head, 0, 0), 4);
    EXPECT_LT(agreement(other_key, 0, 0), 4);
}

TEST(AttentionDropout, FourWeightsOfAHashAreNoOthers) {
    for (const std::int64_t sequence : {1, 7, 16, 17, 40}) {
        const Attention a{sequence, 2, {0.5f, 3, 0}};
        std::set<std::uint64_t> hashes;
        for (std::int64_t head = 0; head < 2; ++head) {
            const AttentionDropout dropout(a, head);
            for (std::int64_t query = 0; query < sequence; ++query)
                for (std::int64_t key = 0; key < sequence; ++key) {
                    const std::uint64_t four = dropout.four(query, key);
                    EXPECT_EQ(four, dropout.four(query & ~8, key & ~8));
                    if ((query & 8) != 0 || (key & 8) != 0) continue;
                    EXPECT_TRUE(hashes.insert(four).second) << query << " " << key;
                }
        }
    }
}

TEST(AttentionDropout, AHeadIsTheSameHeadOnAnotherRank) {
    const auto fifth = mask({kSequence, 2, {0.5f, 3, 0}}, 5);
    EXPECT_EQ(mask({kSequence, 2, {0.5f, 3, 2 * kSequence}}, 1), fifth);
    EXPECT_NE(mask({kSequence, 2, {0.5f, 3, kSequence}}, 1), fifth);
}

TEST(AttentionDropout, TheFactorMakesUpForWhatIsDropped) {
    const auto factor = [](float rate) { return AttentionDropout({1, 1, {rate, 0, 0}}, 0).factor(); };
    EXPECT_EQ(factor(0), 1);
    EXPECT_EQ(factor(0.75f), 4);
    EXPECT_NEAR(factor(0.1f), 1 / 0.9, 2e-5);
    EXPECT_EQ(factor(std::nextafter(1.0f, 0.0f)), 65536) << "never all of them";
}

}  // namespace
}  // namespace dp::trainer
