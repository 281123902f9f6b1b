// SPDX-License-Identifier: Apache-2.0
//
// Texts and lines of JSON that --data-dir names: tokenized once, with every bad document counted and named.
#include "trainer/prepare/corpus.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <thread>

#include "scratch.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/json_lines.hpp"
#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JsonLine, ItsTextIsTheDocument) {
    EXPECT_EQ(text_in_line(R"({"text": "to be"})").value(), "to be");
    EXPECT_EQ(text_in_line(R"({"id": [1, {"text": "no"}], "text": "l\u00e4\n", "meta": null})").value(),
              "lä\n");
    EXPECT_EQ(text_in_line(R"({"text": ""})").value(), "");
    struct Case {
        std::string line, why;
    };
    for (const auto& [line, why] :
         {Case{R"({"text": "to)", "it is no JSON"}, Case{R"({"text": "a"} {"text": "b"})", "it is no JSON"},
          Case{R"({"text": "\ud800"})", "it is no JSON"}, Case{"{\"text\": \"\xff\"}", "it is not UTF-8"},
          Case{R"(["text"])", "it is no object with a \"text\""},
          Case{"7", "it is no object with a \"text\""}, Case{R"({"body": "to be"})", "it has no \"text\""},
          Case{R"({"text": 7})", "its \"text\" is no string"},
          Case{std::string(100'000, '['), "it is no JSON"}})
        EXPECT_EQ(refusal_of(text_in_line(line)), why) << line.substr(0, 40);
}

TEST(LineReader, ReadsLinesOfAnyLengthAndPassesOverTheLongest) {
    const Scratch scratch;
    const std::string long_line(3 << 20, 'x');
    const auto file = scratch.write("lines", "a\n\n" + long_line + "\nb\n" + long_line + "y\nlast");
    auto opened = open_sized(file);
    ASSERT_TRUE(opened);
    LineReader reader(std::move(opened->file), long_line.size());
    std::vector<std::pair<std::int64_t, std::size_t>> lines;
    std::vector<std::int64_t> too_long;
    for (;;) {
        const auto more = reader.next();
        ASSERT_TRUE(more);
        if (!*more) break;
        lines.emplace_back(reader.number(), reader.line().size());
        if (reader.is_too_long()) too_long.push_back(reader.number());
    }
    EXPECT_EQ(lines, (std::vector<std::pair<std::int64_t, std::size_t>>{
                         {1, 1}, {2, 0}, {3, long_line.size()}, {4, 1}, {5, 0}, {6, 4}}));
    EXPECT_EQ(too_long, std::vector<std::int64_t>{5});
}

class CorpusTest : public ::testing::Test {
 protected:
    Result<TokenizedCorpus> tokenize(BadSamples bad = BadSamples::refuse,
                                     const std::string& name = "texts") const {
        const auto corpus = find_corpus(scratch_ / name).value();
        if (!corpus) return fail(Fault::usage, "no texts");
        return tokenize_corpus(*corpus, scratch_ / "cache", bad);
    }
    // Of a set of bytes; documents begin with "|".
    static std::string text_of(const Split& samples) {
        std::vector<Token> tokens(samples.features.bytes.size() / sizeof(Token));
        std::memcpy(tokens.data(), samples.features.bytes.data(), samples.features.bytes.size());
        std::string text;
        for (const Token token : tokens) text += token == 256 ? '|' : static_cast<char>(token);
        return text;
    }
    static Dataset data_of(const TokenizedCorpus& made) {
        auto data = load_tokens(made.directory, 1, 257);
        EXPECT_TRUE(data) << data.error().message;
        return data ? std::move(*data) : Dataset{};
    }
    Scratch scratch_;
};

TEST_F(CorpusTest, EachTextAndEachLineIsADocument) {
    scratch_.write("texts/a.txt", "to be");
    scratch_.write("texts/more/b.jsonl", "{\"text\": \"or not\"}\n\n{\"text\": \"to be\"}");
    scratch_.write("texts/README.md", "no text");
    const auto made = tokenize();
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, StartsWith((scratch_ / "texts").string() + ": 3 documents, 19 tokens"));
    EXPECT_THAT(made->note,
                HasSubstr("(tokenizer bytes, vocabulary 257); kept in " + made->directory.string()));
    const Dataset data = data_of(*made);
    EXPECT_THAT(text_of(data.train) + text_of(data.test),
                ::testing::AnyOf("|to be|or not|to be", "|or not|to be|to be"));
    EXPECT_EQ(vocabulary_of(made->directory), 257);
}

TEST_F(CorpusTest, FilesToTestWithAreToldByTheirNames) {
    scratch_.write("texts/c4-train.0.jsonl", "{\"text\": \"to be\"}\n");
    scratch_.write("texts/c4-validation.0.jsonl", "{\"text\": \"or not\"}\n");
    const auto made = tokenize();
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("2 documents, 6 tokens to train and 7 to test with"));
    EXPECT_EQ(text_of(data_of(*made).train), "|to be");
    EXPECT_EQ(text_of(data_of(*made).test), "|or not");
    // A text of any other name is trained on.
    scratch_.write("poems/train-ride.txt", "to be");
    scratch_.write("poems/test-of-time.txt", "or not");
    const auto poems = tokenize(BadSamples::refuse, "poems");
    ASSERT_TRUE(poems);
    EXPECT_THAT(poems->note, HasSubstr("2 documents, 13 tokens ("));
}

TEST_F(CorpusTest, IsTokenizedOnceUntilItsFilesChange) {
    const auto file = scratch_.write("texts/a.txt", "to be or not to be");
    const auto once = tokenize();
    ASSERT_TRUE(once) << once.error().message;
    const auto written = fs::last_write_time(once->directory / "prepared.json");
    const auto again = tokenize();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->note, once->note);
    EXPECT_EQ(fs::last_write_time(again->directory / "prepared.json"), written);
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
    const auto touched = tokenize();
    ASSERT_TRUE(touched);
    EXPECT_NE(touched->directory, once->directory);
    scratch_.write("texts/b.txt", "and more");
    const auto more = tokenize();
    ASSERT_TRUE(more);
    EXPECT_THAT(more->note, HasSubstr("2 documents"));
}

TEST_F(CorpusTest, OfManyAtTheSameTimeOneDoesIt) {
    scratch_.write("texts/a.txt", "to be or not to be");
    std::vector<std::string> notes(4);
    std::vector<std::thread> threads;
    for (auto& note : notes) {
        threads.emplace_back([&] {
            const auto made = tokenize();
            note = made ? made->note : made.error().message;
        });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& note : notes) EXPECT_THAT(note, HasSubstr("1 document, 19 tokens"));
}

// On other nodes, too, whose locks may tell nothing: what one has made whole stays.
TEST_F(CorpusTest, WhatIsNotWholeIsMadeAnew) {
    scratch_.write("texts/a.txt", "to be or not to be");
    const auto made = tokenize();
    ASSERT_TRUE(made) << made.error().message;
    for (const auto& damage : {"prepared.json", "train_000000.bin"}) {
        if (std::string(damage) == "prepared.json")
            fs::remove(made->directory / damage);  // as if it had been killed before it was whole
        else
            fs::remove_all(made->directory);
        const auto again = tokenize();
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(again->note, made->note);
        EXPECT_EQ(text_of(data_of(*again).train).substr(0, 6), "|to be");
    }
    for (const auto& entry : fs::directory_iterator(scratch_ / "cache"))
        EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST_F(CorpusTest, WhoWaitedForARefusalHasItToo) {
    std::string lines;
    for (int i = 0; i < 20000; ++i)
        lines += R"({"text": "to be or not to be, that is the question"})"
                 "\n";
    scratch_.write("texts/a.jsonl", lines + "no JSON\n");
    std::vector<std::string> errors(6);
    std::vector<std::thread> threads;
    for (auto& error : errors)
        threads.emplace_back([&] {
            const auto made = tokenize();
            error = made ? "" : made.error().message;
        });
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors) EXPECT_THAT(error, HasSubstr("a.jsonl:20001: "));
    scratch_.write("texts/a.jsonl", lines);  // and who comes later begins anew
    EXPECT_TRUE(tokenize());
}

TEST_F(CorpusTest, HiddenFilesAndWhatPrepareMadeAreNoTexts) {
    scratch_.write("texts/a.txt", "to be");
    scratch_.write("texts/.ipynb_checkpoints/a.txt", "to be");
    scratch_.write("texts/cache/text-1/prepared.json", "{}");
    scratch_.write("texts/cache/text-1/notes.txt", "to be");
    scratch_.write("elsewhere/b.txt", "or not");
    fs::create_directory_symlink(scratch_ / "elsewhere", scratch_ / "texts/more");
    const auto corpus = find_corpus(scratch_ / "texts").value();
    ASSERT_TRUE(corpus);
    EXPECT_THAT(corpus->files,
                ElementsAre(fs::path(scratch_ / "texts/a.txt"), fs::path(scratch_ / "texts/more/b.txt")));
}

TEST_F(CorpusTest, WhereAllIsSkippedThereIsNothingToTrainOn) {
    scratch_.write("texts/a.jsonl", "no JSON\n{\"content\": 1}\n");
    const auto made = tokenize(BadSamples::skip);
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr("no text there to train on; all were skipped, the first: "));
}

TEST_F(CorpusTest, BadDocumentsAreRefusedCountedAndNamed) {
    const auto file = scratch_.write(
        "texts/a.jsonl",
        "{\"text\": \"to be\"}\n{\"text\": 7}\n{\"body\": \"\"}\n{\"text\": \"or not\"}\nno\n");
    const auto refused = tokenize();
    EXPECT_EQ(refusal_of(refused),
              file.string() +
                  ":2: its \"text\" is no string; correct it, or give --bad-samples=skip to "
                  "leave out 3 of 5 documents");
    EXPECT_EQ(refused.error().fault, Fault::usage);
    for (const auto& entry : fs::directory_iterator(scratch_ / "cache"))
        EXPECT_FALSE(entry.is_directory()) << entry.path();

    const auto skipped = tokenize(BadSamples::skip);
    ASSERT_TRUE(skipped) << skipped.error().message;
    EXPECT_THAT(skipped->note, HasSubstr("2 documents, 13 tokens"));
    EXPECT_THAT(skipped->note, HasSubstr("; 3 skipped, the first: " + file.string() +
                                         ":2: its \"text\" is no string; kept in"));
    EXPECT_EQ(contents_of(skipped->directory / "skipped.list"),
              file.string() + ":2\n" + file.string() + ":3\n" + file.string() + ":5\n");
    const Dataset data = data_of(*skipped);
    EXPECT_EQ(text_of(data.train) + text_of(data.test), "|to be|or not");
}

// The merges of one word: enough to be GPT-2's tokenizer here.
TEST_F(CorpusTest, WithGpt2sMergesBesideThemTextsAreGpt2sTokensAndMustBeUtf8) {
    scratch_.write("texts/a.txt", "to be to be to be to be");
    scratch_.write("texts/b.txt", "\xff");
    scratch_.write("texts/merges.txt", "#version: 0.2\nt o\nb e\n");
    const auto refused = tokenize();
    EXPECT_THAT(refusal_of(refused),
                HasSubstr("b.txt: byte 0 is not UTF-8; correct it, or give --bad-samples=skip"));
    EXPECT_THAT(refusal_of(refused), EndsWith("1 of 2 documents"));
    const auto made = tokenize(BadSamples::skip);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_THAT(made->note, HasSubstr("1 document, 16 tokens (tokenizer gpt2, vocabulary 259); 1 skipped"));
    EXPECT_TRUE(open_tokenizer(made->directory));
}

TEST_F(CorpusTest, TokensAndNothingAreNoTexts) {
    EXPECT_FALSE(find_corpus(scratch_ / "none").value());
    scratch_.write("texts/merges.txt", "#version: 0.2\n");
    EXPECT_FALSE(find_corpus(scratch_ / "texts").value());
    scratch_.write("texts/a.txt", "to be");
    EXPECT_TRUE(find_corpus(scratch_ / "texts").value());
    EXPECT_TRUE(find_corpus(scratch_ / "texts/a.txt").value());
    scratch_.write("texts/tokens.npy", "");
    EXPECT_FALSE(find_corpus(scratch_ / "texts").value());
}

}  // namespace
}  // namespace dp::trainer
