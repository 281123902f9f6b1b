// SPDX-License-Identifier: Apache-2.0
//
// Token shards and the data set made of them: the format byte by byte, and every way in which one can be bad.
#include "trainer/data/dataset.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "scratch.hpp"
#include "trainer/data/token_shard.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tokens = std::vector<Token>;

Tokens counted(std::size_t count, Token first = 0) {
    Tokens tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

TEST(TokenShard, HasTheHeaderOfLlmC) {
    const Scratch scratch;
    const fs::path file = scratch / "train.bin";
    ASSERT_TRUE(write_shard(file, Tokens{1, 50256, 258}));
    const std::string bytes = contents_of(file);
    ASSERT_EQ(bytes.size(), 1024u + 6);
    EXPECT_EQ(bytes.substr(0, 12), std::string("\x88\xd8\x34\x01\1\0\0\0\3\0\0\0", 12));  // 20240520, 1, 3
    EXPECT_EQ(bytes.substr(12, 1012), std::string(1012, '\0'));
    EXPECT_EQ(bytes.substr(1024), std::string("\1\0\x50\xc4\2\1", 6));
    auto run = open_shard(file);
    ASSERT_TRUE(run) << run.error().message;
    std::vector<TokenRun> runs;
    runs.push_back(std::move(*run));
    Tokens tokens(3);
    ASSERT_TRUE(TokenStream(std::move(runs), 65536).read(0, tokens));
    EXPECT_EQ(tokens, (Tokens{1, 50256, 258}));
}

TEST(TokenShard, RefusesWhatIsMissingCutOrAnotherFile) {
    const Scratch scratch;
    const std::string good = shard_header(3) + std::string(6, 'x');
    const auto refusal = [&](const std::string& contents) {
        const auto read = open_shard(scratch.write("shard.bin", contents));
        EXPECT_FALSE(read);
        if (read) return std::string();
        EXPECT_EQ(read.error().fault, Fault::usage);
        EXPECT_THAT(read.error().message, HasSubstr((scratch / "shard.bin").string()));
        return read.error().message;
    };
    EXPECT_THAT(refusal(""), HasSubstr("cut short within the header"));
    EXPECT_THAT(refusal(good.substr(0, 1023)), HasSubstr("cut short within the header"));
    EXPECT_THAT(refusal(good.substr(0, 1029)), HasSubstr("says 3 tokens, but 5 bytes follow"));
    EXPECT_THAT(refusal(good + "x"), HasSubstr("says 3 tokens, but 7 bytes follow"));
    EXPECT_THAT(refusal(std::string(2000, 'x')), HasSubstr("not a file of GPT-2 tokens"));
    std::string newer = good;
    newer[4] = 7;
    EXPECT_THAT(refusal(newer), HasSubstr("version 7"));
    EXPECT_THAT(refusal(shard_header(0)), HasSubstr("says 0 tokens"));
    EXPECT_THAT(refusal(shard_header(static_cast<std::size_t>(-1))), HasSubstr("says -1 tokens"));
    EXPECT_THAT(refusal_of(open_shard(scratch / "none.bin")), HasSubstr("No such file"));
}

class TokensTest : public ::testing::Test {
 protected:
    void write(const std::string& name, const Tokens& tokens) const {
        ASSERT_TRUE(write_shard(scratch_ / name, tokens));
    }
    Error refusal(std::int64_t sequence, std::int64_t vocabulary = 50257) const {
        const auto data = load_tokens(scratch_.path(), sequence, vocabulary);
        EXPECT_FALSE(data) << "it was taken";
        if (data) return {};
        EXPECT_EQ(data.error().message.find('\n'), std::string::npos);
        return data.error();
    }
    Scratch scratch_;
};

TEST_F(TokensTest, ASequencesTargetIsTheNextTokenAcrossShards) {
    write("text_train_000000.bin", counted(10));
    write("text_train_000001.bin", counted(13, 10));
    write("text_val_000000.bin", counted(9, 100));
    scratch_.write("tokenizer.json", "{}");
    const auto data = load_tokens(scratch_.path(), 4, 109);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->train.count, 5);  // 22 tokens have one after them
    EXPECT_EQ(data->test.count, 2);
    EXPECT_EQ(data->train.features.columns, 4);
    EXPECT_EQ(data->train.features.type, Type::u16);
    EXPECT_TRUE(data->train.next_is_target);
    Tokens stored(21);
    ASSERT_EQ(data->train.features.bytes.size(), sizeof(Token) * stored.size());
    std::memcpy(stored.data(), data->train.features.bytes.data(), data->train.features.bytes.size());
    EXPECT_EQ(stored, counted(21));
}

TEST_F(TokensTest, WhatCannotBeTrainedOnIsRefused) {
    EXPECT_THAT(refusal(4).message, HasSubstr(": no tokens there (llm.c's *.bin"));
    EXPECT_THAT(refusal(4).message, HasSubstr("trainer prepare"));
    write("val.bin", counted(5));
    EXPECT_THAT(refusal(4).message, HasSubstr("tokens to test with, but none to train on"));
    write("train.bin", counted(20));
    EXPECT_TRUE(load_tokens(scratch_.path(), 4, 20));
    EXPECT_THAT(refusal(5).message, HasSubstr("5 tokens to test with, but a sequence of 5 needs 6"));
    EXPECT_THAT(refusal(20).message, HasSubstr("20 tokens to train with, but a sequence of 20 needs 21"));
    const Error vocabulary = refusal(4, 19);
    EXPECT_EQ(vocabulary.fault, Fault::usage);
    EXPECT_THAT(vocabulary.message, HasSubstr("token 19 is outside the model's vocabulary of 19"));
    EXPECT_THAT(vocabulary.message, HasSubstr("give --vocab-size 20 or more"));
    scratch_.write("train_2.bin", "cut");
    EXPECT_THAT(refusal(4).message, HasSubstr("train_2.bin: cut short"));
}

// The first tokens of what is trained on and of what is tested on.
using Beginnings = std::pair<Token, Token>;
Beginnings beginnings_of(const fs::path& where) {
    const auto data = load_tokens(where, 4, 50257);
    EXPECT_TRUE(data) << data.error().message;
    if (!data) return {};
    Beginnings first;
    std::memcpy(&first.first, data->train.features.bytes.data(), sizeof(Token));
    std::memcpy(&first.second, data->test.features.bytes.data(), sizeof(Token));
    return first;
}

TEST_F(TokensTest, ItsNameSaysWhatAFileIsFor) {
    struct Case {
        const char *train, *test;
    };
    for (const auto& [train, test] :
         {Case{"fineweb_train_000001.bin", "fineweb_val_000000.bin"}, Case{"train.bin", "validation.bin"},
          Case{"train.bin", "test.bin"}, Case{"interval.bin", "a-test.bin"}, Case{"latest.bin", "val.bin"},
          Case{"train-without-test.bin", "val.bin"}, Case{"wikitrain.bin", "wikival.bin"},
          Case{"testament.bin", "val.bin"}, Case{"values.bin", "validation.bin"}}) {
        const Scratch scratch;
        ASSERT_TRUE(write_shard(scratch / train, counted(20, 100)));
        ASSERT_TRUE(write_shard(scratch / test, counted(9, 500)));
        EXPECT_EQ(beginnings_of(scratch.path()), (Beginnings{100, 500})) << train << ' ' << test;
    }
    // A test set beside a validation set is for the end of all work.
    write("train.bin", counted(20, 100));
    write("test.bin", counted(20, 200));
    write("val.bin", counted(20, 300));
    write("more.bin", counted(20, 0));
    EXPECT_EQ(beginnings_of(scratch_.path()), (Beginnings{100, 300}));
}

TEST_F(TokensTest, WithoutFilesToTestWithTheLastTokensAreForThat) {
    write("a.bin", counted(150));
    write("b.bin", counted(50, 150));
    EXPECT_EQ(beginnings_of(scratch_.path()), (Beginnings{0, 190}));       // a twentieth
    EXPECT_EQ(beginnings_of(scratch_ / "b.bin"), (Beginnings{150, 195}));  // a sequence at least
    const auto data = load_tokens(scratch_.path(), 4, 200);
    ASSERT_TRUE(data);
    EXPECT_EQ(data->train.count, 47);
    EXPECT_EQ(data->test.count, 2);
    EXPECT_THAT(refusal(150).message, HasSubstr("49 tokens to train with, but a sequence of 150 needs 151"));
    EXPECT_THAT(refusal(300).message, HasSubstr("0 tokens to train with"));
}

}  // namespace
}  // namespace dp::trainer
