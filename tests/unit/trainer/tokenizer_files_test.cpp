// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer files that people have: Hugging Face's tokenizer.json and tiktoken's ranks, and what of them is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "scratch.hpp"
#include "trainer/base/random.hpp"
#include "trainer/data/byte_pairs.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/data/tokenizer_config.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Tokens = std::vector<Token>;

constexpr std::string_view kLines = "#version: 0.2\nl o\nlo w\ne r\nw er\nlow er\na a\naa a\n\xC4\xA0 low\n";

Tokens encoded_by(Tokenizer& tokenizer, std::string_view text) {
    Tokens tokens;
    const auto done = tokenizer.encode(text, tokens);
    EXPECT_TRUE(done) << done.error().message;
    return tokens;
}

std::unique_ptr<Tokenizer> gpt2() {
    return make_gpt2_tokenizer(std::string(kLines), "here").value();
}

// As tokenizers' own save() writes GPT-2's, of these merges.
Json gpt2_json() {
    Json vocabulary = Json::parse(gpt2()->vocabulary_json()), merges = Json::array();
    for (const char* merge : {"l o", "lo w", "e r", "w er", "low er", "a a", "aa a", "\xC4\xA0 low"})
        merges.push_back(merge);
    const Json byte_level{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens",
             {{{"id", vocabulary.at("<|endoftext|>")},
               {"content", "<|endoftext|>"},
               {"single_word", false},
               {"lstrip", false},
               {"rstrip", false},
               {"normalized", false},
               {"special", true}}}},
            {"normalizer", nullptr},
            {"pre_tokenizer", byte_level},
            {"post_processor", byte_level},
            {"decoder", byte_level},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", ""},
              {"end_of_word_suffix", ""},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", false},
              {"vocab", vocabulary},
              {"merges", merges}}}};
}

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t bits = 0;
        for (std::size_t j = 0; j < 3; ++j)
            bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
        for (std::size_t j = 0; j < 4; ++j)
            text += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
    }
    return text;
}

std::string line_of(std::string_view bytes, std::int64_t rank) {
    return base64(bytes) + " " + std::to_string(rank) + "\n";
}

// The bytes in GPT-2's order, then what its merges make: as r50k_base.tiktoken is of the published ones.
std::string ranks_of(const BytePairs& pairs) {
    std::string lines;
    for (std::int64_t token = 0; token < pairs.size(); ++token)
        lines += line_of(pairs.text_of(static_cast<Token>(token)), token);
    return lines;
}
std::string ranks() {
    return ranks_of(BytePairs::read(kLines, "here").value());
}

const char* const kTexts[] = {"", "lower low lowlow", "slower\n\n aaaaa aa", "l\xC3\xA4wer, 12 low!", " low"};

TEST(HuggingFaceTokenizer, EncodesAsGpt2sMergesDo) {
    auto one = gpt2();
    for (const bool in_pairs : {false, true}) {
        Json json = gpt2_json();
        if (in_pairs)
            for (Json& merge : json["model"]["merges"]) {
                const std::string both = merge;
                merge = {both.substr(0, both.find(' ')), both.substr(both.find(' ') + 1)};
            }
        const auto other = make_hugging_face_tokenizer(json.dump(), "tokenizer.json");
        ASSERT_TRUE(other) << other.error().message;
        EXPECT_EQ((*other)->vocabulary(), one->vocabulary());
        EXPECT_EQ((*other)->end_of_text(), one->end_of_text());
        for (const char* text : kTexts) {
            EXPECT_EQ(encoded_by(**other, text), encoded_by(*one, text)) << text;
            EXPECT_EQ((*other)->decode(encoded_by(**other, text)), text);
        }
    }
}

// Some have several special tokens that may end a text.
TEST(HuggingFaceTokenizer, EndsATextWithTheTokenThatTheFilesBesideItName) {
    Json json = gpt2_json();
    const int end = json["added_tokens"][0]["id"];
    json["added_tokens"].push_back({{"id", end + 1}, {"content", "<|im_end|>"}, {"special", true}});
    json["model"]["vocab"]["word"] = end + 2;
    struct Case {
        const char *config, *generation;
        int number;  // behind <|endoftext|>'s
        const char* complaint = nullptr;
    };
    for (const auto& [config, generation, number, complaint] : {
             Case{"", "", 0},
             {R"({"eos_token": "<|im_end|>"})", "", 1},
             {R"({"eos_token": {"content": "<|im_end|>", "lstrip": false}})", "", 1},
             {"", R"({"eos_token_id": 1})", 1},
             {"", R"({"eos_token_id": [1, 0]})", 1},
             {R"({"eos_token": "<|endoftext|>"})", R"({"eos_token_id": 1})", 0},
             {R"({"eos_token": null})", R"({"eos_token_id": null})", 0},
             {R"({"eos_token": "word"})", "", 2},
             {R"({"eos_token": "<s>"})", "", 0,
              ": it lacks '<s>', the eos_token of its tokenizer_config.json; "},
             {"", R"({"eos_token_id": 7777})", 0,
              ": its special tokens lack 7777, the eos_token_id of its generation_config.json; "},
             {R"({"eos_token": 3})", "", 0,
              "tokenizer_config.json: has an eos_token that is not a string; correct it, or remove it"},
             {"[", "", 0, "tokenizer_config.json: is not a JSON object; "},
             {"", R"({"eos_token_id": -1})", 0,
              "generation_config.json: has an eos_token_id that is not a token id; "},
         }) {
        const Scratch scratch;
        std::string numbered = generation;
        if (const auto place = numbered.find('1'); place != std::string::npos && numbered[place - 1] != '-')
            numbered.replace(place, 1, std::to_string(end + 1));
        const auto write = [&](const char* name, const std::string& text) {
            std::ofstream(scratch / name) << text;
        };
        write("tokenizer.json", json.dump());
        if (*config != '\0') write("tokenizer_config.json", config);
        if (*generation != '\0') write("generation_config.json", numbered);
        auto opened = open_tokenizer_file(scratch / "tokenizer.json");
        ASSERT_EQ(opened.has_value(), complaint == nullptr) << config << generation;
        if (complaint != nullptr) {
            EXPECT_THAT(opened.error().message, HasSubstr(complaint));
            continue;
        }
        EXPECT_EQ((*opened)->end_of_text(), end + number) << config << generation;
        // Wherever tokens are kept, the same.
        std::filesystem::create_directory(scratch / "kept");
        ASSERT_TRUE(save_tokenizer(**opened, scratch / "kept"));
        const auto again = open_tokenizer(scratch / "kept");
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ((*again)->end_of_text(), end + number) << config << generation;
        EXPECT_EQ(document_begins_in(scratch / "kept"), end + number);
    }
}

TEST(TokenizerConfig, IsKeptButForWhatItLacks) {
    const auto kept = [](const std::string& given) {
        return Json::parse(tokenizer_config_text(given, "<|im_end|>", 64));
    };
    EXPECT_EQ(kept(R"({"eos_token": "</s>", "chat_template": "x"})"),
              Json({{"eos_token", "</s>"}, {"chat_template", "x"}, {"model_max_length", 64}}));
    EXPECT_EQ(kept(R"({"eos_token": null, "model_max_length": 7})"),
              Json({{"eos_token", "<|im_end|>"}, {"model_max_length", 7}}));
    // Of a model with more positions, or of none in particular, as transformers writes it.
    for (const char* longest : {"1024", "1000000000000000019884624838656", "1e30", "null"})
        EXPECT_EQ(kept(fmt::format("{{\"model_max_length\": {}}}", longest)).at("model_max_length"), 64);
    EXPECT_EQ(Json::parse(tokenizer_config_text(R"({"model_max_length": 1024})", "e")).at("model_max_length"),
              1024);
    EXPECT_EQ(kept("").at("eos_token"), "<|im_end|>");
    EXPECT_EQ(kept("[]").at("tokenizer_class"), "GPT2Tokenizer");
    // To print all of it would take more stack than there is.
    const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
    EXPECT_EQ(kept("{\"eos_token\": \"a\", \"deep\": " + deep + "}").at("eos_token"), "a");
    EXPECT_FALSE(eos_token_in("{\"eos_token\": " + deep + "}"));
    EXPECT_FALSE(eos_token_id_in("{\"eos_token_id\": " + deep + "}"));
}

// As tokenizers' BpeTrainer numbers them: special tokens first, then the bytes in another order than GPT-2's.
TEST(HuggingFaceTokenizer, TakesTheNumbersThatTheFileHas) {
    Json json = gpt2_json();
    const auto vocabulary = json["model"]["vocab"].get<std::map<std::string, int>>();
    const int last = static_cast<int>(vocabulary.size()) - 1;
    for (const auto& [text, number] : vocabulary) json["model"]["vocab"][text] = last - number;
    json["added_tokens"][0]["id"] = 0;
    const auto turned = make_hugging_face_tokenizer(json.dump(), "tokenizer.json");
    ASSERT_TRUE(turned) << turned.error().message;
    EXPECT_EQ((*turned)->end_of_text(), 0);
    EXPECT_EQ((*turned)->vocabulary(), last + 1);
    auto one = gpt2();
    for (const char* text : kTexts) {
        Tokens expected = encoded_by(*one, text);
        for (Token& token : expected) token = static_cast<Token>(last - token);
        EXPECT_EQ(encoded_by(**turned, text), expected) << text;
    }
    EXPECT_EQ((*turned)->decode(Tokens{0, static_cast<Token>(last - 256)}), "<|endoftext|>lo");
    json["model"]["ignore_merges"] = true;
    json["model"]["vocab"]["lowlow"] = last + 1;
    const auto whole = make_hugging_face_tokenizer(json.dump(), "tokenizer.json");
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(encoded_by(**whole, "lowlow"), Tokens{static_cast<Token>(last + 1)});
    // A special token is none that a text becomes.
    json["added_tokens"].push_back({{"id", last + 1}, {"content", "lowlow"}, {"special", true}});
    const auto special = make_hugging_face_tokenizer(json.dump(), "tokenizer.json");
    ASSERT_TRUE(special) << special.error().message;
    EXPECT_EQ(encoded_by(**special, "lowlow"), encoded_by(**turned, "lowlow"));
    EXPECT_EQ((*special)->decode(Tokens{static_cast<Token>(last + 1)}), "lowlow");
}

TEST(HuggingFaceTokenizer, RefusesWhatWouldGiveOtherTokensThanTheLibrary) {
    struct Case {
        std::function<void(Json&)> change;
        std::string why;
    };
    const Case cases[] = {
        {[](Json& j) { j["model"]["type"] = "WordPiece"; },
         "its model is WordPiece, and this trainer has BPE alone"},
        {[](Json& j) { j["model"]["type"] = "Unigram"; }, "its model is Unigram"},
        {[](Json& j) { j.erase("model"); }, "it has no model"},
        {[](Json& j) {
             j["normalizer"] = {{"type", "NFC"}};
         },
         "it changes a text before (normalizer NFC)"},
        {[](Json& j) { j["pre_tokenizer"] = nullptr; },
         "its pre_tokenizer is none, and this trainer has ByteLevel"},
        {[](Json& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }, "its pre_tokenizer is Whitespace"},
        {[](Json& j) {
             j["pre_tokenizer"] = {{"type", "Sequence"},
                                   {"pretokenizers", {{{"type", "Split"}}, {{"type", "ByteLevel"}}}}};
         },
         "its pre_tokenizer is Sequence"},
        {[](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, "adds a blank before a text"},
        {[](Json& j) { j["pre_tokenizer"]["use_regex"] = false; }, "splits no words"},
        {[](Json& j) { j["model"]["dropout"] = 0.1; }, "its model has a dropout"},
        {[](Json& j) { j["model"]["byte_fallback"] = true; }, "its model has a byte_fallback"},
        {[](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "its model has a end_of_word_suffix"},
        {[](Json& j) { j["added_tokens"][0]["special"] = false; },
         "its added token '<|endoftext|>' is not special"},
        {[](Json& j) { j["added_tokens"] = Json::array(); },
         "it lacks <|endoftext|>, which this trainer puts before"},
        {[](Json& j) { j["model"]["vocab"].erase("!"); }, "it lacks a token for the byte 0x21"},
        {[](Json& j) { j["model"]["vocab"].erase("lo"); }, "it merges 'l' and 'o', but lacks the token 'lo'"},
        {[](Json& j) { j["model"]["vocab"]["lo"] = 0; }, "two of its tokens have the number 0"},
        {[](Json& j) { j["model"]["vocab"]["lo"] = 65536; },
         "it has token 65536, and this trainer's models have at most 65536 tokens"},
        {[](Json& j) { j["model"]["vocab"]["lo"] = -1; }, "the number of its token 'lo' is none"},
        {[](Json& j) { j["model"]["vocab"] = 7; }, "its model has no vocab"},
        {[](Json& j) { j["model"]["merges"][1] = "lo"; }, "its merge 1 is not of two tokens"},
        {[](Json& j) {
             j["model"]["merges"][1] = {"lo", "w", "x"};
         },
         "its merge 1 is not of two tokens"},
        {[](Json& j) { j["model"].erase("merges"); }, "its model has no merges"},
        {[](Json& j) { j = Json::array(); }, "it has no model"},
    };
    for (const auto& [change, why] : cases) {
        Json json = gpt2_json();
        change(json);
        const auto refused = make_hugging_face_tokenizer(json.dump(), "DIR/tokenizer.json");
        EXPECT_THAT(refusal_of(refused), HasSubstr("DIR/tokenizer.json: ")) << why;
        EXPECT_THAT(refusal_of(refused), HasSubstr(why));
        EXPECT_EQ(refusal_of(refused).find('\n'), std::string::npos);
    }
    EXPECT_THAT(refusal_of(make_hugging_face_tokenizer("{", "f")), HasSubstr("f: it is no JSON; give "));
}

TEST(TiktokenTokenizer, EncodesAsGpt2sMergesDo) {
    auto one = gpt2();
    const auto other = make_tiktoken_tokenizer(ranks(), "r50k_base.tiktoken");
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_EQ((*other)->vocabulary(), one->vocabulary());
    EXPECT_EQ((*other)->end_of_text(), one->end_of_text());
    for (const char* text : kTexts) {
        EXPECT_EQ(encoded_by(**other, text), encoded_by(*one, text)) << text;
        EXPECT_EQ((*other)->decode(encoded_by(**other, text)), text);
    }
    EXPECT_EQ((*other)->merges(), one->merges());
    EXPECT_EQ((*other)->vocabulary_json(), one->vocabulary_json());
}

// byte_pair_merge() of tiktoken's src/lib.rs, spelled out: the leftmost of the pairs whose bytes together have the least rank.
Tokens merged_by_rank(const std::map<std::string, int>& ranks, const std::string& word) {
    std::vector<std::string> parts;
    if (ranks.contains(word)) return {static_cast<Token>(ranks.at(word))};
    for (const char byte : word) parts.emplace_back(1, byte);
    for (;;) {
        std::size_t best = parts.size();
        int least = 1 << 30;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i)
            if (const auto found = ranks.find(parts[i] + parts[i + 1]);
                found != ranks.end() && found->second < least) {
                least = found->second;
                best = i;
            }
        if (best == parts.size()) break;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    Tokens tokens;
    for (const auto& part : parts) tokens.push_back(static_cast<Token>(ranks.at(part)));
    return tokens;
}

// Any tokens, also such as no merge makes.
TEST(TiktokenTokenizer, AgreesWithTheRuleSpelledOutOnAnyRanks) {
    Random random(11, 0);
    for (int round = 0; round < 20; ++round) {
        std::map<std::string, int> table;
        std::string lines;
        const auto add = [&](const std::string& text) {
            const int rank = static_cast<int>(table.size());
            if (table.emplace(text, rank).second) lines += line_of(text, rank);
        };
        for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
        while (table.size() < 300) {
            std::string text;
            for (std::uint32_t left = 2 + random.below(4); left > 0; --left)
                text += static_cast<char>('a' + random.below(3));
            add(text);
        }
        const auto tokenizer = make_tiktoken_tokenizer(lines, "here");
        ASSERT_TRUE(tokenizer) << tokenizer.error().message;
        for (int i = 0; i < 100; ++i) {
            std::string word;
            for (std::uint32_t left = random.below(30); left > 0; --left)
                word += static_cast<char>('a' + random.below(3));
            if (word.empty()) continue;
            ASSERT_EQ(encoded_by(**tokenizer, word), merged_by_rank(table, word)) << word;
        }
    }
}

// p50k_base has 50256 among its numbers, too.
TEST(TiktokenTokenizer, TheFirstNumberThatIsFreeEndsAText) {
    const auto between = make_tiktoken_tokenizer(ranks() + line_of("lowest", 300), "here");
    ASSERT_TRUE(between) << between.error().message;
    EXPECT_EQ((*between)->end_of_text(), 256 + 8);
    EXPECT_EQ((*between)->vocabulary(), 301);
    EXPECT_EQ(encoded_by(**between, "lowest"), Tokens{300});
    EXPECT_EQ((*between)->decode(Tokens{264, 270, 300, 301}), "<|endoftext|>lowest");
}

TEST(TiktokenTokenizer, RefusesWhatIsNoneAndNamesTheLine) {
    const std::string good = ranks();
    for (const auto& [lines, why] : std::map<std::string, std::string>{
             {"IQ== 0\nIg==\n", "line 2 is not a token in base64, a blank and its number"},
             {"IQ= 0\n", "line 1 is not a token in base64"},
             {"I*== 0\n", "line 1 is not a token in base64"},
             {"IQ== -1\n", "line 1 is not a token in base64"},
             {"IQ== 0 1\n", "line 1 is not a token in base64"},
             {"{\"version\": 1}\n", "line 1 is not a token in base64"},
             {"IQ== 100255\n",
              "line 1 has token 100255, and this trainer's models have at most 65536 tokens"},
             {"IQ== 0\nIg== 0\n", "line 2 has token 0 again"},
             {"IQ== 0\nIQ== 1\n", "its tokens 0 and 1 are the same text"},
             {"IQ== 0\n", "it lacks a token for the byte 0x00"},
             {std::string(400, 'A') + " 1\n", "line 1 has a token of 300 bytes; at most 256 are taken"},
             {"", "it lacks a token for the byte 0x00"}}) {
        const auto refused = make_tiktoken_tokenizer(lines, "DIR/x.tiktoken");
        EXPECT_THAT(refusal_of(refused), HasSubstr("DIR/x.tiktoken: " + why)) << lines;
    }
    EXPECT_TRUE(make_tiktoken_tokenizer("\n" + good + "\r\n", "windows"));
}

TEST(TokenizerFile, IsFoundByItsNameAndKeptWithTheTokens) {
    const Scratch scratch;
    EXPECT_FALSE(tokenizer_file_in(scratch.path()));
    scratch.write("m/merges.txt", std::string(kLines));
    scratch.write("t/r50k_base.tiktoken", ranks());
    scratch.write("t/text.txt", "low");
    scratch.write("h/tokenizer.json", gpt2_json().dump());
    scratch.write("h/merges.txt", std::string(kLines));
    EXPECT_EQ(tokenizer_file_in(scratch / "h"), scratch / "h/tokenizer.json");
    EXPECT_EQ(tokenizer_file_in(scratch / "t/text.txt"), scratch / "t/r50k_base.tiktoken");
    auto one = gpt2();
    for (const char* directory : {"m", "t", "h"}) {
        const auto opened = open_tokenizer_file(tokenizer_file_in(scratch / directory).value());
        ASSERT_TRUE(opened) << opened.error().message;
        EXPECT_EQ(vocabulary_of(scratch / directory), 265) << directory;
        const auto kept = scratch / "kept" / directory;
        std::filesystem::create_directories(kept);
        ASSERT_TRUE(save_tokenizer(**opened, kept));
        EXPECT_EQ(vocabulary_of(kept), 265) << directory;
        for (const auto& where : {scratch / directory, kept}) {
            const auto again = open_tokenizer(where);
            ASSERT_TRUE(again) << again.error().message;
            EXPECT_EQ(encoded_by(**again, "lower low aaaa"), encoded_by(*one, "lower low aaaa")) << where;
        }
    }
    // A damaged one is found, too, and not passed over for another way to make tokens.
    scratch.write("d/tokenizer.json", "{\"model\": ");
    ASSERT_EQ(tokenizer_file_in(scratch / "d"), scratch / "d/tokenizer.json");
    EXPECT_FALSE(open_tokenizer_file(scratch / "d/tokenizer.json"));
    EXPECT_EQ(contents_of(scratch / "kept/h/tokenizer.json"), contents_of(scratch / "h/tokenizer.json"));
    EXPECT_THAT(
        refusal_of(open_tokenizer_file(scratch.write("spiece.model", ""))),
        HasSubstr("spiece.model: no tokenizer that this trainer reads; give Hugging Face's tokenizer.json"));
    std::filesystem::resize_file(scratch.write("huge.tiktoken", ""), kLargestTokenizerFile + 1);
    EXPECT_THAT(refusal_of(open_tokenizer_file(scratch / "huge.tiktoken")),
                HasSubstr("33554433 bytes, and no tokenizer"));
    // Of a kind that this trainer does not have: the tokens are trained on all the same.
    scratch.write("u/tokenizer.json", R"({"model": {"type": "Unigram"}})");
    EXPECT_FALSE(vocabulary_of(scratch / "u"));
    EXPECT_THAT(refusal_of(open_tokenizer(scratch / "u")), HasSubstr("its model is Unigram"));
}

}  // namespace
}  // namespace dp::trainer
