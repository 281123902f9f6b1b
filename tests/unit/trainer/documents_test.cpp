// SPDX-License-Identifier: Apache-2.0
//
// --reset-attention-mask: tokens see those of their own document alone.
#include <gmock/gmock.h>

#include "scratch.hpp"
#include "trainer/base/random.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/gpt.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

constexpr std::int32_t kBegins = 7;

// The logits behind these tokens.
std::vector<float> logits_behind(const std::vector<std::int32_t>& tokens, std::int64_t document_begins) {
    GptShape shape{2, 16, 2, 8, 29};
    shape.document_begins = document_begins;
    const auto model = make_language_model(shape);
    const auto device = open_cpu(1);
    model->place(*device, 1, 1);
    const auto length = static_cast<std::int64_t>(tokens.size());
    const Tensor logits = model->next_logits(device->copy_of<std::int32_t>(Type::i32, {1, length}, tokens));
    return device->values_of<float>(logits);
}

TEST(Documents, SeeNothingOfThoseBefore) {
    const std::vector<std::int32_t> one{1, 2, 3, kBegins, 4, 5}, other{9, 8, 3, kBegins, 4, 5};
    EXPECT_EQ(logits_behind(one, kBegins), logits_behind(other, kBegins));
    EXPECT_NE(logits_behind(one, -1), logits_behind(other, -1)) << "else they do";
    EXPECT_NE(logits_behind({kBegins, 4, 5}, kBegins), logits_behind({kBegins, 6, 5}, kBegins));
}

Options with(std::vector<std::string> words) {
    words.insert(words.end(), {"--model=gpt", "--reset-attention-mask"});
    const Parsed parsed = parse_options(words);
    EXPECT_TRUE(parsed.options) << parsed.text;
    return completed(*parsed.options, *find_model("gpt"));
}

TEST(Documents, BeginWithWhatTheDataSay) {
    const Scratch scratch;
    ASSERT_TRUE(save_tokenizer(*make_byte_tokenizer(), scratch.path()));
    Options options = with({"--data-dir=" + scratch.path().string(), "--vocab-size=257"});
    ASSERT_TRUE(choose_documents(options));
    EXPECT_EQ(options.shape.gpt.document_begins, 256);
    // Tokens without a word on where they come from are GPT-2's, if there can be such.
    options = with({"--data-dir=/nowhere"});
    ASSERT_TRUE(choose_documents(options));
    EXPECT_EQ(options.shape.gpt.document_begins, 50256);
    options = with({"--data-dir=/nowhere", "--vocab-size=1000"});
    const auto refused = choose_documents(options);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message,
                HasSubstr("--reset-attention-mask: /nowhere does not say which token "
                          "begins a document; give its tokenizer as --tokenizer FILE"));
    options = with({"--data-dir=/nowhere", "--vocab-size=60000"});
    EXPECT_FALSE(choose_documents(options)) << "too many to be GPT-2's";
    options = with({"--vocab-size=50257"});
    options.data.mix = DataMix{{{"/nowhere", 1}, {scratch.path(), 1}}};
    const auto mixed = choose_documents(options);
    ASSERT_FALSE(mixed);
    EXPECT_THAT(mixed.error().message,
                HasSubstr("documents of /nowhere begin with token 50256, and those of "));
    Options without = with({});
    without.resets_attention = false;
    ASSERT_TRUE(choose_documents(without));
    EXPECT_EQ(without.shape.gpt.document_begins, -1);
}

}  // namespace
}  // namespace dp::trainer
