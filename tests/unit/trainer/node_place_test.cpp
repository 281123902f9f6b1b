// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/node_place.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "trainer/parallel/node_sums.hpp"

namespace dp::trainer {
namespace {

using Ranks = std::vector<std::uint32_t>;

TEST(PlaceAmong, FindsLocalRanksAndPeers) {
    struct Case {
        const char* what;
        std::vector<std::int64_t> nodes;
        std::int64_t rank;
        Ranks local_ranks;
        std::int64_t local_rank, fewest;
        Ranks peers;
        bool is_any_shared;
    };
    for (const auto& [what, nodes, rank, local_ranks, local_rank, fewest, peers, is_any_shared] :
         std::vector<Case>{
             {"one node", {7, 7, 7}, 1, {0, 1, 2}, 1, 3, {1}, true},
             {"two nodes", {0, 0, 1, 1}, 3, {2, 3}, 1, 2, {1, 3}, true},
             {"ranks dealt out in turn", {0, 1, 0, 1}, 2, {0, 2}, 1, 2, {2, 3}, true},
             {"the numbers of nodes are not in the order of ranks",
              {9, 9, 4, 4},
              0,
              {0, 1},
              0,
              2,
              {0, 2},
              true},
             {"a smaller node: the first of it", {0, 0, 0, 1, 1}, 3, {3, 4}, 0, 2, {0, 3}, true},
             {"and one that has no peer there", {0, 0, 0, 1, 1}, 2, {0, 1, 2}, 2, 2, {}, true},
             {"alone, with company elsewhere", {0, 0, 1}, 2, {2}, 0, 1, {0, 2}, true},
             {"all alone", {0, 1, 2}, 1, {1}, 0, 1, {0, 1, 2}, false},
         }) {
        const NodePlace place = place_among(nodes, rank);
        EXPECT_EQ(place.local_ranks, local_ranks) << what;
        EXPECT_EQ(place.local_rank, local_rank) << what;
        EXPECT_EQ(place.fewest, fewest) << what;
        EXPECT_EQ(place.peers, peers) << what;
        EXPECT_EQ(place.is_any_shared, is_any_shared) << what;
    }
    EXPECT_EQ(place_among(std::vector<std::int64_t>{3, 5, 3}, 0).nodes, 2);
}

TEST(PlaceAmong, IsInOrderIfRanksAreNumberedNodeByNode) {
    struct Case {
        std::vector<std::int64_t> nodes;
        bool is_in_order;
    };
    for (const auto& [nodes, is_in_order] : std::vector<Case>{{{0}, true},
                                                              {{0, 0, 1}, true},
                                                              {{2, 2, 1, 0, 0}, true},
                                                              {{0, 1, 2}, true},
                                                              {{0, 1, 0, 1}, false},
                                                              {{0, 1, 1, 0}, false},
                                                              {{0, 0, 1, 2, 1}, false}})
        for (std::size_t rank = 0; rank < nodes.size(); ++rank)
            EXPECT_EQ(place_among(nodes, static_cast<std::int64_t>(rank)).is_in_order, is_in_order)
                << ::testing::PrintToString(nodes) << ", rank " << rank;
}

TEST(PlaceAmong, IsHomogeneousIfAllNodesHaveTheSameNumberOfRanksInOneOrder) {
    struct Case {
        std::vector<std::int64_t> nodes;
        bool is_homogeneous;
    };
    for (const auto& [nodes, is_homogeneous] : std::vector<Case>{{{0}, true},
                                                                 {{0, 0, 0}, true},
                                                                 {{0, 0, 1, 1, 2, 2}, true},
                                                                 {{2, 2, 1, 1, 0, 0}, true},
                                                                 {{0, 1, 2, 0, 1, 2}, true},
                                                                 {{0, 1, 2}, true},
                                                                 {{0, 0, 1}, false},
                                                                 {{0, 1, 1}, false},
                                                                 {{0, 1, 2, 0, 2, 1}, false},
                                                                 {{0, 1, 1, 0}, false}})
        for (std::size_t rank = 0; rank < nodes.size(); ++rank)
            EXPECT_EQ(place_among(nodes, static_cast<std::int64_t>(rank)).is_homogeneous, is_homogeneous)
                << ::testing::PrintToString(nodes);
}

TEST(PlaceAmong, FindsThePeerOnTheNodeBefore) {
    struct Case {
        std::vector<std::int64_t> nodes;
        std::vector<std::int64_t> before;  // by rank; empty: there is none
    };
    for (const auto& [nodes, before] : std::vector<Case>{{{0, 0, 1, 1, 2, 2}, {4, 5, 0, 1, 2, 3}},
                                                         {{9, 9, 4, 4}, {2, 3, 0, 1}},
                                                         {{0, 1, 0, 1}, {1, 0, 3, 2}},
                                                         {{0, 1, 2}, {2, 0, 1}},
                                                         {{0, 0, 0}, {}},
                                                         {{0, 0, 1}, {}}})
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const auto rank = static_cast<std::int64_t>(i);
            const auto expected = before.empty() ? std::nullopt : std::optional(before[i]);
            EXPECT_EQ(place_among(nodes, rank).peer_before(rank), expected)
                << ::testing::PrintToString(nodes);
        }
}

TEST(SlicesOf, ASliceIsWorthARank) {
    struct Case {
        std::int64_t numbers, ranks, slices;
    };
    for (const auto& [numbers, ranks, slices] : std::vector<Case>{{1, 8, 1},
                                                                  {kLeastSlice - 1, 8, 1},
                                                                  {2 * kLeastSlice - 1, 8, 1},
                                                                  {2 * kLeastSlice, 8, 2},
                                                                  {100 * kLeastSlice, 8, 8},
                                                                  {100 * kLeastSlice, 1, 1}})
        EXPECT_EQ(slices_of(numbers, ranks), slices) << numbers << " among " << ranks;
}

TEST(SliceOf, TheSlicesAreTheWholeAndBeginAtCacheLines) {
    for (const std::int64_t numbers : {1, 15, 16, 17, 1000, 65536, 1199882}) {
        for (const std::int64_t slices : {1, 2, 3, 7, 8, 64}) {
            std::int64_t next = 0;
            for (std::int64_t index = 0; index < slices; ++index) {
                const Shard slice = slice_of(numbers, slices, index);
                EXPECT_EQ(slice.first, next) << numbers << " in " << slices << ", " << index;
                EXPECT_EQ(slice.first % 16, 0);
                EXPECT_GE(slice.count, 0);
                if (numbers >= slices * kLeastSlice) {
                    EXPECT_LT(std::abs(slice.count - numbers / slices), 64 * 16) << "they are even";
                }
                next = slice.first + slice.count;
            }
            EXPECT_EQ(next, numbers);
        }
    }
}

TEST(AddUp, AddsInTheOrderOfRanksAndTouchesNothingElse) {
    constexpr std::int64_t kNumbers = 7001;
    std::vector<std::vector<float>> ranks(5);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        for (std::int64_t i = 0; i < kNumbers; ++i)
            ranks[rank].push_back(std::ldexp(1.0f + static_cast<float>(i % 977) / 977.0f,
                                             static_cast<int>(rank * 3 + static_cast<std::size_t>(i) % 5)));
    const auto before = ranks;
    std::vector<float*> all;
    for (auto& rank : ranks) all.push_back(rank.data());
    const Shard slice{13, 5003};
    add_up(all, slice);
    for (std::int64_t i = 0; i < kNumbers; ++i) {
        const auto at = static_cast<std::size_t>(i);
        float sum = before[0][at];
        for (std::size_t rank = 1; rank < ranks.size(); ++rank) sum += before[rank][at];
        const bool inside = i >= slice.first && i < slice.first + slice.count;
        ASSERT_EQ(ranks[0][at], inside ? sum : before[0][at]) << i;
        for (std::size_t rank = 1; rank < ranks.size(); ++rank) ASSERT_EQ(ranks[rank][at], before[rank][at]);
    }
}

TEST(NodeShare, PartsAreAllOnceAndNotTooSmall) {
    for (const std::int64_t numbers : {1, 100, 16384, 40000, 1199999}) {
        for (const std::int64_t ranks : {1, 2, 3, 64}) {
            std::int64_t next = 0;
            for (std::int64_t index = 0; index < ranks; ++index) {
                const Shard part = NodeShare{index, ranks, 1}.part_of(numbers);
                EXPECT_EQ(part.first, next) << numbers << " of " << ranks;
                EXPECT_TRUE(part.count == 0 || part.count >= std::min(numbers, kLeastSlice - 16));
                next = part.first + part.count;
            }
            EXPECT_EQ(next, numbers);
        }
    }
}

}  // namespace
}  // namespace dp::trainer
