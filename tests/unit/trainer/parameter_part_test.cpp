// SPDX-License-Identifier: Apache-2.0
#include "trainer/base/parameter_part.hpp"

#include <gmock/gmock.h>

#include <array>

#include <numeric>

#include "trainer/base/random.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/parameters.hpp"
#include "trainer/training/gradient_norm.hpp"
#include "trainer/training/gradient_reducer.hpp"

namespace dp::trainer {

void PrintTo(const Extent& one, std::ostream* out) {
    *out << "{" << one.there << ", " << one.here << ", " << one.count << "}";
}

namespace {

using ::testing::ElementsAre;

TEST(ParameterPart, IsInAsFewExtentsAsPossible) {
    EXPECT_THAT(extents_of(whole_part({6, 4})), ElementsAre(Extent{0, 0, 24}));
    EXPECT_THAT(extents_of(whole_part({2, 3, 3})), ElementsAre(Extent{0, 0, 18}));
    EXPECT_THAT(extents_of(row_part({6, 4}, 1, 1, 3)), ElementsAre(Extent{8, 0, 8}));
    EXPECT_THAT(extents_of(row_part({6, 4}, 3, 1, 2)),
                ElementsAre(Extent{4, 0, 4}, Extent{12, 4, 4}, Extent{20, 8, 4}));
    EXPECT_THAT(extents_of(row_part({6}, 3, 0, 2)),
                ElementsAre(Extent{0, 0, 1}, Extent{2, 1, 1}, Extent{4, 2, 1}));
    EXPECT_THAT(extents_of(column_part({3, 4}, 1, 2)),
                ElementsAre(Extent{2, 0, 2}, Extent{6, 2, 2}, Extent{10, 4, 2}));
}

TEST(ParameterPart, HasTheShapeOfWhatIsHere) {
    EXPECT_EQ(whole_part({5, 3, 3}).shape(), (Shape{5, 3, 3}));
    EXPECT_EQ(row_part({6, 4}, 3, 1, 2).shape(), (Shape{3, 4}));
    EXPECT_EQ(row_part({6}, 3, 1, 2).shape(), (Shape{3}));
    EXPECT_EQ(column_part({6, 4}, 1, 2).shape(), (Shape{6, 2}));
    EXPECT_TRUE(row_part({6, 4}, 3, 0, 1).is_whole());
    EXPECT_TRUE(column_part({6, 4}, 0, 1).is_whole());
    EXPECT_FALSE(column_part({6, 4}, 0, 2).is_whole());
}

TEST(ParameterPart, PartsOfAllRanksHaveEachNumberOnce) {
    std::vector<float> whole(12 * 8);
    std::iota(whole.begin(), whole.end(), 0.0f);
    for (const std::int64_t ranks : {1, 2, 4})
        for (const int kind : {0, 1, 2}) {
            std::vector<int> seen(whole.size());
            for (std::int64_t rank = 0; rank < ranks; ++rank) {
                const auto part = kind == 2 ? column_part({12, 8}, rank, ranks)
                                            : row_part({12, 8}, kind == 0 ? 1 : 3, rank, ranks);
                for (const float number : taken_from(whole, part)) ++seen[static_cast<std::size_t>(number)];
            }
            EXPECT_THAT(seen, ::testing::Each(1)) << ranks << " ranks, kind " << kind;
        }
}

TEST(ParameterPart, InitialValuesAreThoseOfTheWhole) {
    const auto device = open_cpu(1);
    for (const Initial initial : {Initial::uniform(1), Initial::normal(0.02f), Initial::constant(3)}) {
        ParameterSet whole;
        whole.add("first", {5, 3}, initial);
        const Parameter& all = whole.add("second", {12, 8}, initial);
        whole.place(*device, 7);
        const auto numbers = device->values_of<float>(all.value);
        for (const ParameterPart& part : {row_part({12, 8}, 3, 1, 2), column_part({12, 8}, 3, 4)}) {
            ParameterSet some;
            some.add("first", {5, 3}, initial);
            const Parameter& here = some.add("second", part, initial);
            some.place(*device, 7);
            EXPECT_EQ(device->values_of<float>(here.value), taken_from(numbers, part));
            EXPECT_EQ(some.whole_count(), whole.count());
            EXPECT_LT(some.count(), whole.count());
        }
    }
}

TEST(Random, SkipsAsIfDrawn) {
    Random drawn(3, 4), skipped(3, 4);
    for (int i = 0; i < 1000; ++i) (void)drawn.bits();
    skipped.skip(1000);
    EXPECT_EQ(drawn.bits(), skipped.bits());
}

// A stage of a pipeline declares what other stages have, so that all number and place the whole model alike.
TEST(ParameterSet, PlacesNothingOfWhatOtherRanksHave) {
    const auto device = open_cpu(1);
    ParameterSet some;
    const Initial ones = Initial::constant(1);
    const Parameter& first = some.add("first", absent_part({4, 6}), ones, {8, 8});
    const Parameter& here = some.add("here", {8, 2}, ones);
    const Parameter& bias = some.add("bias", absent_part({8}), ones);
    some.place(*device, 1);
    EXPECT_EQ(first.shape, (Shape{0, 6}));
    EXPECT_EQ(bias.shape, Shape{0});
    EXPECT_EQ(here.first, 0);
    EXPECT_EQ(here.whole_first, 64);
    EXPECT_EQ(some.count(), 16);
    EXPECT_EQ(some.whole_count(), 24 + 16 + 8);
    EXPECT_EQ(some.padded_count(), 64);
    EXPECT_EQ(some.decayed(), 64);
    EXPECT_TRUE(extents_of(first.part).empty());
    EXPECT_TRUE(taken_from(std::vector<float>(24), first.part).empty());
    EXPECT_EQ(some.download(*device), std::vector<float>(16, 1.0f));
    const auto buckets = buckets_of(some);
    ASSERT_EQ(buckets.size(), 1u);
    EXPECT_EQ(buckets[0].pieces.size(), 1u);
    EXPECT_EQ(buckets[0].pieces[0].count, 64);
}

// Ranks that have 19 and 18 of 37 rows place all that comes behind them at the same elements, which sums over ranks rely on.
TEST(ParameterSet, TakesTheSameRoomForUnequalParts) {
    const auto device = open_cpu(1);
    const Initial ones = Initial::constant(1);
    std::array<ParameterSet, 3> sets;
    for (std::int64_t rank = 0; rank < 2; ++rank)
        sets[static_cast<std::size_t>(rank)].add("table", row_part({37, 16}, 1, rank, 2), ones, {8, 24});
    sets[2].add("table", {37, 16}, ones, {8, 40});
    for (ParameterSet& set : sets) {
        set.add("next", {4, 16}, ones);
        set.place(*device, 1);
    }
    for (const std::size_t rank : {0, 1}) {
        EXPECT_EQ(sets[rank].all()[1].first, 24 * 16);
        EXPECT_EQ(sets[rank].all()[1].whole_first, sets[2].all()[1].first);
        EXPECT_EQ(sets[rank].all()[0].with_spare_rows(sets[rank].all()[0].value).rows(), 24);
    }
}

TEST(GradientNorm, CountsWhatNoEarlierRankHas) {
    const auto device = open_cpu(1);
    const Initial zero = Initial::constant(0);
    ParameterSet all, some;
    all.add("matrix", {8, 8}, zero);
    all.add("bias", {8}, zero);
    all.place(*device, 1);
    const auto counted = counted_of(all);
    ASSERT_EQ(counted.size(), 1u);
    EXPECT_EQ(counted[0].count, all.padded_count());

    some.add("copied", whole_part({8, 8}, true), zero);
    some.add("of another stage", absent_part({8, 8}), zero);  // at the same element as what comes next
    const Parameter& matrix = some.add("matrix", row_part({8, 8}, 1, 1, 2), zero);
    const Parameter& next = some.add("next", column_part({8, 8}, 1, 2), zero);
    const Parameter& bias = some.add("bias", row_part({8}, 1, 1, 2), zero);
    some.add("copied bias", whole_part({8}, true), zero);
    some.place(*device, 1);
    const auto ranges = counted_of(some);
    ASSERT_EQ(ranges.size(), 1u);  // what is counted lies together
    EXPECT_EQ(ranges[0].first, matrix.first);
    EXPECT_GT(ranges[0].first + ranges[0].count, bias.first);
    EXPECT_GT(bias.first, next.first);
}

TEST(GradientNorm, BlocksDoNotReachOverTheEndOfARange) {
    const std::vector<Shard> ranges{{0, 10}, {16, 4}};
    const auto blocks = blocks_of(ranges, 4);
    std::vector<std::pair<std::int64_t, std::int64_t>> seen;
    for (const Shard& one : blocks) seen.emplace_back(one.first, one.count);
    using Pair = std::pair<std::int64_t, std::int64_t>;
    EXPECT_THAT(seen, ElementsAre(Pair{0, 4}, Pair{4, 4}, Pair{8, 2}, Pair{16, 4}));
}

}  // namespace
}  // namespace dp::trainer
