// SPDX-License-Identifier: Apache-2.0
//
// The distributed sampler's promises: same global batches for every world size, every sample once, drop_last,
// a new order each epoch.
#include "trainer/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace dp::trainer {
namespace {

// The samples of global batch `step`, put together from all ranks.
std::vector<std::int32_t> global_batch(std::int64_t samples, std::int64_t batch, std::int64_t world,
                                       std::uint64_t seed, std::uint64_t epoch, std::int64_t step) {
    std::vector<std::int32_t> all;
    for (std::int64_t rank = 0; rank < world; ++rank) {
        const auto mine = DistributedSampler(samples, batch, rank, world, seed).epoch(epoch);
        all.insert(all.end(), mine.begin() + step * batch, mine.begin() + (step + 1) * batch);
    }
    return all;
}

TEST(Sampler, GlobalBatchesAreTheSameForEveryWorldSize) {
    for (std::int64_t step : {0, 1, 14}) {
        const auto alone = global_batch(1000, 64, 1, 7, 3, step);
        for (std::int64_t world : {2, 4, 8, 16, 64})
            EXPECT_EQ(global_batch(1000, 64 / world, world, 7, 3, step), alone);
    }
}

TEST(Sampler, TakesEverySampleAtMostOnceAndDropsOnlyTheLastPartialBatch) {
    for (std::int64_t samples : {1, 7, 96, 1000}) {
        for (std::int64_t world : {1, 2, 3, 8}) {
            for (std::int64_t batch : {1, 5, 32}) {
                std::multiset<std::int32_t> seen;
                std::int64_t steps = 0;
                for (std::int64_t rank = 0; rank < world; ++rank) {
                    const DistributedSampler sampler(samples, batch, rank, world, 1);
                    const auto mine = sampler.epoch(1);
                    seen.insert(mine.begin(), mine.end());
                    steps = sampler.steps_per_epoch();
                    EXPECT_EQ(static_cast<std::int64_t>(mine.size()), steps * batch);
                }
                EXPECT_EQ(steps, samples / (batch * world));
                EXPECT_EQ(std::set<std::int32_t>(seen.begin(), seen.end()).size(), seen.size())
                    << "a sample came twice";
                EXPECT_LT(samples - static_cast<std::int64_t>(seen.size()), batch * world)
                    << "too much was dropped";
                if (!seen.empty()) {
                    EXPECT_GE(*seen.begin(), 0);
                    EXPECT_LT(*seen.rbegin(), samples);
                }
            }
        }
    }
}

TEST(Sampler, OrderDependsOnSeedAndEpochOnly) {
    const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
        return DistributedSampler(500, 10, 0, 1, seed).epoch(epoch);
    };
    EXPECT_EQ(order(1, 1), order(1, 1));
    EXPECT_NE(order(1, 1), order(1, 2));
    EXPECT_NE(order(1, 1), order(2, 1));
    std::vector<std::int32_t> sorted(500);
    std::iota(sorted.begin(), sorted.end(), 0);
    EXPECT_NE(order(1, 1), sorted) << "not shuffled";
}

TEST(Sampler, MoreSamplesThanAreListedComeOnceEachToo) {
    constexpr std::int64_t kSamples = kMostListed + 5;
    std::vector<bool> seen(static_cast<std::size_t>(kSamples));
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const DistributedSampler sampler(kSamples, 4, rank, 2, 3);
        EXPECT_FALSE(sampler.is_listed());
        const auto mine = sampler.epoch(2);
        const Permutation permutation = sampler.permutation_of(2);
        for (std::int64_t i : {0, 1, 4, 100'001}) {
            EXPECT_EQ(mine[static_cast<std::size_t>(i)], permutation.at(sampler.place_of(i))) << i;
        }
        for (const std::int32_t one : mine) {
            EXPECT_FALSE(seen[static_cast<std::size_t>(one)]);
            seen[static_cast<std::size_t>(one)] = true;
        }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), kSamples % 8);
}

TEST(Permutation, OfAnyLengthNamesEachPlaceOnce) {
    for (const std::int64_t count : {1, 2, 3, 4, 5, 16, 17, 1000}) {
        std::set<std::int64_t> seen;
        for (std::int64_t i = 0; i < count; ++i) seen.insert(Permutation(count, 7).at(i));
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), count);
        EXPECT_EQ(*seen.rbegin(), count - 1);
    }
    const std::int64_t huge = std::int64_t{1} << 40;
    EXPECT_LT(Permutation(huge, 1).at(huge - 1), huge);
    EXPECT_NE(Permutation(huge, 1).at(3), Permutation(huge, 2).at(3));
}

// Neighbours are not: of 100000 places a tenth each lies in each tenth, and few are followed by their own successor.
TEST(Permutation, Shuffles) {
    constexpr std::int64_t kCount = 100'000;
    const Permutation permutation(kCount, 11);
    std::vector<std::int64_t> tenths(10);
    std::int64_t successors = 0;
    for (std::int64_t i = 0; i < kCount / 10; ++i) {
        ++tenths[static_cast<std::size_t>(permutation.at(i) * 10 / kCount)];
        if (permutation.at(i + 1) == permutation.at(i) + 1) ++successors;
    }
    for (const std::int64_t tenth : tenths) EXPECT_NEAR(static_cast<double>(tenth), 1000, 150);
    EXPECT_LT(successors, 10);
}

}  // namespace
}  // namespace dp::trainer
