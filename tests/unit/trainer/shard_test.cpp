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
#include "thread_grid.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/checkpoint/gathered_numbers.hpp"
#include "trainer/models/gpt.hpp"

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
        const std::vector<PlacedPart> now{{"a", whole_part({2, 2}), 4, 4}, {"b", whole_part({3}), 0, 0}};
        const std::vector<Vector> vectors{{"running", numbers(5, -9), false},
                                          {"values", numbers(9, -9), true}};
        const auto read = read_vectors(directory.path(), manifest, now, vectors, device());
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_THAT(device().values_of<float>(vectors[0].numbers), ElementsAre(0, 1, 2, 3, 4));
        EXPECT_THAT(device().values_of<float>(vectors[1].numbers),
                    ElementsAre(107, 108, 109, -6, 101, 102, 103, 104, -1));
    }
}

// In the order of the vectors and of their numbers, of which two pieces are on their way at a time.
TEST_P(Shards, OfManyPiecesHaveThemInOrder) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    const std::vector<Vector> vectors{{"long", numbers(3 * kPiece + 5, 1), true},
                                      {"none", numbers(0, 0), true},
                                      {"short", numbers(7, 100), false}};
    const Scratch directory;
    const auto written = write_shard(directory / "all", vectors, 0, 1, device());
    ASSERT_TRUE(written) << written.error().message;
    std::string expected;
    for (const Vector& vector : vectors) {
        const auto numbers_of_it = device().values_of<float>(vector.numbers);
        expected.append(reinterpret_cast<const char*>(numbers_of_it.data()),
                        numbers_of_it.size() * sizeof(float));
    }
    EXPECT_TRUE(contents_of(directory / "all") == expected);
    Sha256 sha;
    sha.update(expected.data(), expected.size());
    EXPECT_EQ(hex_of(written->digest), hex_of(sha.digest()));
    EXPECT_TRUE(written->is_finite);
}

// Larger than what is synced at a time.
TEST(CopiedShard, IsWrittenToItsEndUnlessItIsAskedToStop) {
    const Scratch directory;
    std::vector<float> numbers((std::size_t{2} << 23) + 5);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    const auto written = write_copied_shard(std::move(*DurableFile::create(directory / "all")), numbers, {});
    ASSERT_TRUE(written) << written.error().message;
    const std::string expected(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
    EXPECT_TRUE(contents_of(directory / "all") == expected);
    Sha256 sha;
    sha.update(expected.data(), expected.size());
    EXPECT_EQ(hex_of(written->digest), hex_of(sha.digest()));
    std::stop_source stop;
    stop.request_stop();
    EXPECT_FALSE(
        write_copied_shard(std::move(*DurableFile::create(directory / "cut")), numbers, stop.get_token()));
    EXPECT_EQ(contents_of(directory / "cut"), "");
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
            const auto read = read_vectors(directory.path(), manifest,
                                           {{"a", whole_part({2, 2}), 1, 1}, {"b", whole_part({3}), 7, 7}},
                                           {held}, device());
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

// Of a gpt that ranks divide, two with the same part of it each, and of one that they have whole; and read back by ranks that divide
// it otherwise.
TEST(DividedShards, AreThoseOfTheWholeToTheBit) {
    const Scratch whole_directory, directory;
    const auto state_of = [](const LanguageModel& model, Device& device) {
        // A second vector, whose numbers tell where they belong.
        std::vector<float> state(static_cast<std::size_t>(model.parameters().padded_count()));
        for (const Parameter& one : model.parameters().all())
            for (const Extent& extent : extents_of(one.part))
                std::iota(state.begin() + one.first + extent.here,
                          state.begin() + one.first + extent.here + extent.count,
                          static_cast<float>(one.whole_first + extent.there));
        return upload(device, {static_cast<std::int64_t>(state.size())}, state);
    };
    const auto vectors_of = [&](const LanguageModel& model, Device& device, const Shard& held) {
        const ParameterSet& all = model.parameters();
        const std::int64_t whole = all.whole_padded_count(), here = all.padded_count();
        return std::vector<Vector>{
            {"values", all.values(), true, 0, whole, here},
            {"m", state_of(model, device).view(held.first, {held.count}), true, held.first, whole, here}};
    };
    const GptShape shape{2, 24, 6, 10, 37};
    const auto with = [&](std::int64_t rank, std::int64_t ranks, Device& device,
                          std::optional<std::uint64_t> seed) {
        GptShape mine = shape;
        mine.layout = {rank, ranks};
        auto model = make_language_model(mine);
        model->place(device, seed, 1);
        return model;
    };
    const auto device = open_cpu(1);
    const auto one = with(0, 1, *device, 5);
    Manifest manifest;
    for (const Parameter& parameter : one->parameters().all())
        manifest.training.parameters.push_back({parameter.name, parameter.shape, parameter.first});
    const auto whole = vectors_of(*one, *device, {0, one->parameters().padded_count()});
    for (const auto& vector : whole) manifest.vectors.push_back({vector.name, vector.elements()});
    for (std::int64_t rank = 0; rank < 4; ++rank)
        manifest.shards.push_back(
            {hex_of(
                 write_shard(whole_directory.path() / shard_name(rank, 4), whole, rank, 4, *device)->digest),
             0, 0});

    ThreadGrid({2, 2, 1}).run([&](const Ranks& ranks) {
        const auto mine = open_cpu(1);
        const auto model = with(ranks.tensor.rank(), 2, *mine, 5);
        const ParameterSet& all = model->parameters();
        const auto held = vectors_of(*model, *mine, shard_of(all.padded_count(), ranks.data.rank(), 2));
        GatheredNumbers gathered(placed_parts(all), ranks.data.rank() == 0, *mine, ranks.world);
        const auto name = shard_name(ranks.world.rank(), 4);
        ASSERT_TRUE(write_shard(directory.path() / name, held, ranks.world.rank(), 4, *mine, &gathered));
        EXPECT_EQ(contents_of(directory / name), contents_of(whole_directory / name));
        // In two parts, as beside a training.
        std::vector<float> copied;
        ASSERT_TRUE(copy_shard(held, ranks.world.rank(), 4, *mine, &gathered, copied));
        ASSERT_TRUE(
            write_copied_shard(std::move(*DurableFile::create(directory / ("copied-" + name))), copied, {}));
        EXPECT_EQ(contents_of(directory / ("copied-" + name)), contents_of(whole_directory / name));
    });
    for (std::int64_t rank = 0; rank < 3; ++rank) {
        const auto mine = open_cpu(1), expected = open_cpu(1);
        const auto model = with(rank, 3, *mine, std::nullopt), drawn = with(rank, 3, *expected, 5);
        const std::int64_t count = model->parameters().padded_count();
        for (std::int64_t part = 0; part < 2; ++part) {
            const Shard held = shard_of(count, part, 2);
            const Tensor m = mine->make(Type::f32, {held.count});
            mine->zero(m);
            const auto read = read_vectors(
                directory.path(), manifest, placed_parts(model->parameters()),
                {{"values", model->parameters().values(), true}, {"m", m, true, held.first, count}}, *mine);
            ASSERT_TRUE(read) << read.error().message;
            EXPECT_EQ(mine->values_of<float>(m),
                      mine->values_of<float>(state_of(*drawn, *mine).view(held.first, {held.count})));
        }
        EXPECT_EQ(mine->values_of<float>(model->parameters().values()),
                  expected->values_of<float>(drawn->parameters().values()));
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
        const auto read =
            read_vectors(directory.path(), manifest, {{"a", whole_part({8}), 0, 0}}, {vector}, device());
        ASSERT_FALSE(read) << vector.name;
        EXPECT_EQ(read.error().fault, Fault::checkpoint);
        EXPECT_THAT(read.error().message, ::testing::HasSubstr(vector.name));
    }
}

INSTANTIATE_ON_EACH_DEVICE(Shards);

}  // namespace
}  // namespace dp::trainer
