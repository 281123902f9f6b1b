// SPDX-License-Identifier: Apache-2.0
//
// Sets of tokens that are mixed by weight: the parts, each sample once, and the same for everybody.
#include <gmock/gmock.h>

#include <set>

#include "scratch.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/token_shard.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tokens = std::vector<Token>;

constexpr std::int64_t kSequence = 4;

class TokenMixTest : public ::testing::Test {
 protected:
    // A set of so many samples, whose tokens are `first` and those after it; and one to test with.
    DataMix::Part set(const std::string& name, std::int64_t samples, Token first, double weight) const {
        fs::create_directory(scratch_ / name);
        Tokens tokens(static_cast<std::size_t>(samples * kSequence + 1));
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(first + i);
        EXPECT_TRUE(write_shard(scratch_ / name / "train.bin", tokens));
        EXPECT_TRUE(write_shard(scratch_ / name / "val.bin", std::span(tokens).first(kSequence + 1)));
        return {scratch_ / name, weight};
    }
    static Result<Dataset> mixed(const DataMix& mix, std::uint64_t seed = 1) {
        return mix_tokens(mix, kSequence, 65536, seed);
    }
    // The first token of each sample.
    static Tokens firsts_of(const Split& samples) {
        Tokens firsts;
        Tokens row(kSequence + 1);
        for (std::int64_t i = 0; i < samples.count; ++i) {
            EXPECT_TRUE(samples.streamed->rows->read(i, row));
            EXPECT_EQ(row[kSequence], row[0] + kSequence);  // whole
            firsts.push_back(row[0]);
        }
        return firsts;
    }
    Scratch scratch_;
};

TEST_F(TokenMixTest, HasThePartsThatTheWeightsSayAndEachSampleOnce) {
    const DataMix mix{{set("a", 3000, 0, 0.7), set("b", 600, 20000, 0.2), set("c", 2000, 40000, 0.1)}};
    const auto data = mixed(mix);
    ASSERT_TRUE(data) << data.error().message;
    // b is used up first: 600 are a fifth of 3000.
    EXPECT_NEAR(static_cast<double>(data->train.count), 3000, 3);
    const Tokens firsts = firsts_of(data->train);
    EXPECT_EQ(std::set<Token>(firsts.begin(), firsts.end()).size(), firsts.size());
    for (const std::size_t length : {std::size_t{10}, std::size_t{500}, firsts.size()}) {
        std::vector<double> taken(3);
        for (std::size_t i = 0; i < length; ++i) ++taken[firsts[i] / 20000];
        EXPECT_NEAR(taken[0], 0.7 * static_cast<double>(length), 1.1) << length;
        EXPECT_NEAR(taken[1], 0.2 * static_cast<double>(length), 1.1) << length;
        EXPECT_NEAR(taken[2], 0.1 * static_cast<double>(length), 1.1) << length;
    }
    EXPECT_EQ(data->test.count, 1);  // then a has none for the second turn, which is its own, too
    EXPECT_THAT(data->source, HasSubstr("0.7 " + (scratch_ / "a").string() + " + 0.2 "));
}

TEST_F(TokenMixTest, ItsSeedAloneDecidesWhichSamplesItHas) {
    const DataMix mix{{set("a", 500, 0, 1), set("b", 100, 20000, 1)}};
    const auto once = mixed(mix), again = mixed(mix), other = mixed(mix, 2);
    ASSERT_TRUE(once && again && other);
    EXPECT_EQ(firsts_of(once->train), firsts_of(again->train));
    EXPECT_EQ(fingerprint_of(once->train), fingerprint_of(again->train));
    EXPECT_NE(firsts_of(once->train), firsts_of(other->train));
    EXPECT_NE(fingerprint_of(once->train), fingerprint_of(other->train));
}

// Its fingerprint is of all of it where it is small.
TEST_F(TokenMixTest, IsAnotherWithOtherWeightsOrTokens) {
    DataMix mix{{set("a", 500, 0, 1), set("b", 500, 20000, 1)}};
    const auto before = mixed(mix);
    ASSERT_TRUE(before);
    mix.parts[1].weight = 2;
    const auto other_weights = mixed(mix);
    ASSERT_TRUE(other_weights);
    EXPECT_NE(fingerprint_of(before->train), fingerprint_of(other_weights->train));
    mix.parts[1] = set("b", 500, 20001, 1);
    const auto other_tokens = mixed(mix);
    ASSERT_TRUE(other_tokens);
    EXPECT_NE(fingerprint_of(before->train), fingerprint_of(other_tokens->train));
}

TEST_F(TokenMixTest, WhatCannotBeMixedIsRefused) {
    const DataMix little{{set("a", 500, 0, 1), set("b", 500, 20000, 0.0001)}};
    EXPECT_THAT(refusal_of(mixed(little)), HasSubstr("b:0.0001: less than one sample of 1000"));
    const DataMix missing{{set("a", 500, 0, 1), {scratch_ / "none", 1}}};
    EXPECT_THAT(refusal_of(mixed(missing)), HasSubstr("none: no tokens there"));
    const DataMix outside{{set("a", 500, 0, 1), set("b", 500, 20000, 1)}};
    EXPECT_THAT(refusal_of(mix_tokens(outside, kSequence, 20000, 1)), HasSubstr("b/train.bin: token 2"));
}

}  // namespace
}  // namespace dp::trainer
