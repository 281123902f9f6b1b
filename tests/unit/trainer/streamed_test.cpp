// SPDX-License-Identifier: Apache-2.0
//
// Token sets that are larger than what is held in memory: the same samples, fingerprint and batches as if they were, and sets of
// 100 GB begin at once.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "scratch.hpp"
#include "token_sets.hpp"
#include "trainer/data/load.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/data/token_shard.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/training/sample_order.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tokens = std::vector<Token>;

constexpr std::int64_t kTokens = kMostHeld / 2 + 1'000'000;

Tokens many_tokens(std::int64_t count) {
    Tokens tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<Token>((i * 2654435761u >> 7) % 50000);
    return tokens;
}

// Two shards and some to test with.
class StreamedTest : public ::testing::Test {
 protected:
    static void SetUpTestSuite() {
        scratch_ = new Scratch;
        tokens_ = new Tokens(many_tokens(kTokens));
        const auto all = std::span(*tokens_);
        ASSERT_TRUE(write_shard(*scratch_ / "train_0.bin", all.first(20'000'001)));
        ASSERT_TRUE(write_shard(*scratch_ / "train_1.bin", all.subspan(20'000'001)));
        ASSERT_TRUE(write_shard(*scratch_ / "val_0.bin", all.first(1000)));
    }
    static void TearDownTestSuite() {
        delete scratch_;
        delete tokens_;
    }
    static Result<Dataset> streamed(std::int64_t vocabulary = 50000) {
        return load_tokens(scratch_->path(), 64, vocabulary);
    }
    static Split held(const Split& like) {
        Split samples = like;
        samples.streamed.reset();
        samples.features = Matrix::of<Token>(
            Type::u16, 64, std::span(*tokens_).first(static_cast<std::size_t>(like.count) * 64 + 1));
        return samples;
    }
    static inline const Scratch* scratch_;
    static inline const Tokens* tokens_;
};

TEST_F(StreamedTest, ASampleIsWhereItWouldBeInMemory) {
    const auto data = streamed();
    ASSERT_TRUE(data) << data.error().message;
    ASSERT_TRUE(data->train.streamed);
    EXPECT_FALSE(data->test.streamed);
    EXPECT_EQ(data->train.count, (kTokens - 1) / 64);
    EXPECT_TRUE(data->train.features.bytes.empty());
    Tokens row(65);
    for (const std::int64_t sample : {std::int64_t{0}, std::int64_t{312'500}, data->train.count - 1}) {
        data->train.streamed->rows->expect(sample);
        ASSERT_TRUE(data->train.streamed->rows->read(sample, row));
        const auto there = tokens_->begin() + sample * 64;
        EXPECT_TRUE(std::equal(row.begin(), row.end(), there)) << sample;  // 312500 lies in both shards
    }
}

TEST_F(StreamedTest, HasTheFingerprintThatItWouldHaveInMemory) {
    const auto data = streamed();
    ASSERT_TRUE(data);
    EXPECT_EQ(fingerprint_of(data->train), fingerprint_of(held(data->train)));
}

TEST_F(StreamedTest, GivesTheBatchesThatItWouldGiveFromMemory) {
    const auto data = streamed();
    ASSERT_TRUE(data);
    const Split in_memory = held(data->train);
    {
        const auto device = open_cpu(1);
        DeviceSamples from_files(*device, data->train, 5, 1000, 4, Type::f32);
        DeviceSamples from_memory(*device, in_memory, 5, 1000, 4, Type::f32);
        const DistributedSampler sampler(data->train.count, 4, 1, 2, 1);
        const SampleOrder order(sampler, 1, data->train, *device);
        EXPECT_EQ(order.take(4, 3).numbers.size(), 3u);
        const std::vector<std::int32_t> listed = sampler.epoch(1);
        EXPECT_EQ(order.take(4, 3).numbers, (std::vector<std::int64_t>{listed[4], listed[5], listed[6]}));
        const auto one = from_files.gather({{}, {7, 0, 999}});
        ASSERT_TRUE(one) << one.error().message;
        const auto other = from_memory.gather({uploaded(*device, {7, 0, 999}), {}});
        ASSERT_TRUE(other);
        EXPECT_EQ(device->values_of<std::int32_t>(one->x), device->values_of<std::int32_t>(other->x));
        EXPECT_EQ(device->values_of<std::int32_t>(one->target),
                  device->values_of<std::int32_t>(other->target));
    }
}

TEST_F(StreamedTest, ATokenThatTheModelDoesNotHaveIsToldWithItsFile) {
    const auto some = streamed(100);
    EXPECT_THAT(refusal_of(some), HasSubstr("train_0.bin: token "));
    EXPECT_THAT(refusal_of(some), HasSubstr("is outside the model's vocabulary of 100; give --vocab-size"));
}

// ---- 100 GB

double peak_bytes() {
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

// Loads, asks for the first batch, and reads it.
void expect_to_begin_at_once(const fs::path& where, std::int64_t tokens) {
    const double before = peak_bytes();
    const auto start = std::chrono::steady_clock::now();
    const auto data =
        load({.set = DataSet::tokens, .directory = where, .sequence = 1024, .vocabulary = 50257});
    ASSERT_TRUE(data) << data.error().message;
    const DistributedSampler sampler(data->train.count, 8, 0, 1, 1);
    const auto device = open_cpu(1);
    const SampleOrder order(sampler, 1, data->train, *device);
    DeviceSamples samples(*device, data->train, 0, data->train.count, 8, Type::f32);
    const SampleChoice first = order.take(0, 8);
    samples.expect(first);
    ASSERT_TRUE(samples.gather(first));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 10) << where;
    EXPECT_LT(peak_bytes() - before, 64e6) << where;
    EXPECT_GT(data->train.count * 1024, tokens / 100 * 90) << where;
    EXPECT_EQ(std::set<std::int64_t>(first.numbers.begin(), first.numbers.end()).size(), 8u);
}

TEST(HundredGigabytes, OfLlmCsShardsBeginAtOnce) {
    const Scratch scratch;
    constexpr std::int64_t kShard = 2'000'000'000, kShards = 25;
    for (std::int64_t i = 0; i < kShards; ++i) {
        const auto file = scratch.write("tokens_" + std::to_string(i) + ".bin", shard_header(kShard));
        fs::resize_file(file, 1024 + 2 * kShard);
    }
    expect_to_begin_at_once(scratch.path(), kShard * kShards);
}

TEST(HundredGigabytes, OfMegatronsFilesBeginAtOnce) {
    const Scratch scratch;
    constexpr std::int64_t kLength = 1'000'000'000, kSequences = 50;
    std::vector<std::int64_t> pointers;
    for (std::int64_t i = 0; i < kSequences; ++i) pointers.push_back(2 * kLength * i);
    scratch.write("text_document.idx",
                  megatron_index(std::vector<std::int32_t>(kSequences, kLength), pointers, 8));
    fs::resize_file(scratch.write("text_document.bin", ""), 2 * kLength * kSequences);
    expect_to_begin_at_once(scratch / "text_document", kLength * kSequences);
}

TEST(HundredGigabytes, OfNumbersOfNumPyBeginAtOnce) {
    const Scratch scratch;
    constexpr std::int64_t kRows = 250'000, kColumns = 100'000;
    const auto file = scratch.write("tokens.npy", npy_header("<i4", "(250000, 100000)", 1));
    fs::resize_file(file, static_cast<std::int64_t>(fs::file_size(file)) + 4 * kRows * kColumns);
    expect_to_begin_at_once(file, kRows * kColumns);
}

}  // namespace
}  // namespace dp::trainer
