// SPDX-License-Identifier: Apache-2.0
//
// Vectors written by some number of ranks, and read back where the parameters lie elsewhere.
#include "trainer/checkpoint/shard.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "devices.hpp"
#include "saved_training.hpp"
#include "trainer/base/partition.hpp"

namespace dp::trainer {
namespace {

using ::testing::ElementsAre;

class Shards : public OnEachDevice {
 protected:
    // start, start + 1, …
    Tensor numbers(std::int64_t count, float start) {
        std::vector<float> values(static_cast<std::size_t>(count));
        std::iota(values.begin(), values.end(), start);
        return upload(device(), {count}, values);
    }
};

// Eleven numbers, in which the parameters a (2 x 2) and b (3) begin at 1 and 7, and a vector
// without parameters.
TEST_P(Shards, ComeBackWhereTheParametersAreNow) {
    const std::vector<Vector> then{{"values", numbers(11, 100), true}, {"running", numbers(5, 0), false}};
    for (const std::int64_t world : {1, 2, 3, 16}) {
        const Scratch directory;
        Manifest manifest;
        manifest.training.parameters = {{"a", {2, 2}, 1}, {"b", {3}, 7}};
        manifest.vectors = {{"values", 11}, {"running", 5}};
        for (std::int64_t rank = 0; rank < world; ++rank) {
            const auto written =
                write_shard(directory.path() / shard_name(rank, world), then, rank, world, device());
            ASSERT_TRUE(written);
            manifest.shards.push_back({hex_of(written->digest), 0, 0});
        }
        for (std::int64_t rank = 0; rank < world; ++rank) {
            const auto file = directory.path() / shard_name(rank, world);
            EXPECT_TRUE(verify_shard(directory.path(), manifest, rank));
            EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(file)),
                      shard_bytes(manifest.vectors, rank, world));
        }
        const std::vector<Place> now{{"a", {2, 2}, 4}, {"b", {3}, 0}};
        const std::vector<Vector> vectors{{"running", numbers(5, -9), false},
                                          {"values", numbers(9, -9), true}};
        const auto read = read_vectors(directory.path(), manifest, now, vectors, device());
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_THAT(device().values_of<float>(vectors[0].numbers), ElementsAre(0, 1, 2, 3, 4));
        EXPECT_THAT(device().values_of<float>(vectors[1].numbers),
                    ElementsAre(107, 108, 109, -6, 101, 102, 103, 104, -1));
    }
}

// As the optimizer's state is where it is sharded.
TEST_P(Shards, AreTheSameOfRanksThatHoldTheirPartsOnly) {
    const std::vector<Place> places{{"a", {2, 2}, 1}, {"b", {3}, 7}};
    for (const std::int64_t world : {1, 2, 3, 16}) {
        const Scratch whole_directory, directory;
        Manifest manifest;
        manifest.training.parameters = places;
        manifest.vectors = {{"m", 11}};
        for (std::int64_t rank = 0; rank < world; ++rank) {
            const Shard part = shard_of(11, rank, world);
            const Vector whole{"m", numbers(11, 100), true};
            const Vector held{"m", numbers(part.count, 100 + static_cast<float>(part.first)), true,
                              part.first, 11};
            const auto name = shard_name(rank, world);
            write_shard(whole_directory.path() / name, {whole}, rank, world, device()).value();
            const auto written = write_shard(directory.path() / name, {held}, rank, world, device());
            ASSERT_TRUE(written);
            EXPECT_EQ(contents_of(directory / name), contents_of(whole_directory / name));
            manifest.shards.push_back({hex_of(written->digest), 0, 0});
        }
        // Read by four ranks, each its part.
        for (std::int64_t rank = 0; rank < 4; ++rank) {
            const Shard part = shard_of(11, rank, 4);
            const Vector held{"m", numbers(part.count, -50), true, part.first, 11};
            const auto read = read_vectors(directory.path(), manifest, places, {held}, device());
            ASSERT_TRUE(read) << read.error().message;
            const auto found = device().values_of<float>(held.numbers);
            for (std::int64_t i = 0; i < part.count; ++i) {
                const std::int64_t place = part.first + i;
                const bool is_parameter = (place >= 1 && place < 5) || (place >= 7 && place < 10);
                EXPECT_EQ(found[static_cast<std::size_t>(i)],
                          static_cast<float>(is_parameter ? 100 + place : -50 + i))
                    << world << " ranks, number " << place;
            }
        }
    }
}

// More numbers than the host holds at a time.
TEST_P(Shards, AreCopiedInPieces) {
    constexpr std::int64_t kMany = 2'500'000;
    const Scratch directory;
    const std::vector<Vector> then{{"values", numbers(kMany, 0), false}};
    Manifest manifest;
    manifest.vectors = {{"values", kMany}};
    const auto written = write_shard(directory.path() / shard_name(0, 1), then, 0, 1, device());
    ASSERT_TRUE(written);
    manifest.shards = {{hex_of(written->digest), 0, 0}};
    EXPECT_TRUE(verify_shard(directory.path(), manifest, 0));
    const std::vector<Vector> vectors{{"values", device().make(Type::f32, {kMany}), false}};
    ASSERT_TRUE(read_vectors(directory.path(), manifest, {}, vectors, device()));
    EXPECT_EQ(device().values_of<float>(vectors[0].numbers), device().values_of<float>(then[0].numbers));
}

TEST_P(Shards, SayWhetherAllInThemIsANumber) {
    const Scratch directory;
    for (const float odd : {1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
        std::vector<float> values(20, 1.0f);
        values[7] = odd;
        const Vector vector{"values", device().copy_of<float>(Type::f32, {20}, values), false};
        const auto written = write_shard(directory.path() / shard_name(0, 1), {vector}, 0, 1, device());
        ASSERT_TRUE(written);
        EXPECT_EQ(written->is_finite, odd == 1.0f);
        std::filesystem::remove(directory.path() / shard_name(0, 1));
    }
}

TEST_P(Shards, OfAnotherLengthAreRefused) {
    const Scratch directory;
    Manifest manifest;
    manifest.training.parameters = {{"a", {8}, 0}};
    manifest.vectors = {{"values", 8}, {"m", 7}, {"running", 5}};
    manifest.shards = {{"", 0, 0}};
    write_shard(directory.path() / shard_name(0, 1), {{"values", numbers(20, 0), false}}, 0, 1, device())
        .value();
    for (const auto& vector :
         {Vector{"running", numbers(6, 0), false}, {"m", numbers(8, 0), true}, {"v", numbers(8, 0), true}}) {
        const auto read = read_vectors(directory.path(), manifest, {{"a", {8}, 0}}, {vector}, device());
        ASSERT_FALSE(read) << vector.name;
        EXPECT_EQ(read.error().fault, Fault::checkpoint);
        EXPECT_THAT(read.error().message, ::testing::HasSubstr(vector.name));
    }
}

INSTANTIATE_ON_EACH_DEVICE(Shards);

}  // namespace
}  // namespace dp::trainer
