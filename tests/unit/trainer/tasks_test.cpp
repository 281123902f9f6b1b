// SPDX-License-Identifier: Apache-2.0
//
// Questions for gpt: what their files may have, and the scores, against the probabilities of next_logits(), of which `trainer generate`
// makes text.
#include "trainer/commands/tasks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>

#include "saved_training.hpp"
#include "trainer/commands/saved_model.hpp"
#include "trainer/formats/questions.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

TEST(Questions, MayBeNamedInThreeWays) {
    struct {
        const char* line;
        const char* context;
        std::vector<std::string> choices;
        std::size_t answer;
    } const cases[] = {
        {R"({"context": "The sky is", "choices": ["blue", "square"], "answer": 1, "id": [7]})",
         "The sky is",
         {"blue", "square"},
         1},
        {R"({"ind": 24, "ctx": "The sky is", "endings": ["blue.", "a", "b", "c"], "label": 3, "ctx_a": "x"})",
         "The sky is",
         {"blue.", "a", "b", "c"},
         3},
        {R"({"ctx": "The sky is ", "endings": [" blue", "a"], "label": "0"})",
         "The sky is",
         {"blue", "a"},
         0},
        {R"({"context": "", "choices": ["a", "b"], "answer": 0})", "", {"a", "b"}, 0},
        {R"({"text": "The sky\nis blue\n"})", "The sky\nis", {"blue"}, 0},
        {R"({"text": "\u00e9t\u00e9 d\u00e9j\u00e0"})", "\u00e9t\u00e9", {"d\u00e9j\u00e0"}, 0},
    };
    for (const auto& [line, context, choices, answer] : cases) {
        const auto question = question_of(line);
        ASSERT_TRUE(question) << line << question.error().message;
        EXPECT_EQ(question->context, context);
        EXPECT_EQ(question->choices, choices);
        EXPECT_EQ(question->answer, answer);
    }
}

TEST(Questions, WhatIsWrongWithALineIsSaidWithItsNumber) {
    const char* const cases[][2] = {
        {"{", "is no JSON"},
        {"[1]", "is no object of JSON"},
        {"\"\\u0000", "is no JSON"},
        {R"({"question": "?"})", "has neither \"context\" (with \"choices\" and \"answer\"), nor \"ctx\""},
        {R"({"context": 3, "choices": ["a", "b"], "answer": 0})", "\"context\" is no text"},
        {R"({"context": "a"})", "lacks \"choices\""},
        {R"({"ctx": "a"})", "lacks \"endings\""},
        {R"({"ctx": "a", "endings": "b", "label": 0})", "\"endings\" is no list of two texts or more"},
        {R"({"ctx": "a", "endings": ["b"], "label": 0})", "\"endings\" is no list of two texts or more"},
        {R"({"ctx": "a", "endings": ["b", 1], "label": 0})", "\"endings\" has what is no text"},
        {R"({"ctx": "a", "endings": ["b", " "], "label": 0})", "\"endings\" has an empty text"},
        {R"({"ctx": "a", "endings": ["b", "c"]})", "lacks \"label\""},
        {R"({"ctx": "a", "endings": ["b", "c"], "label": 2})",
         "\"label\" is not the number of one of the 2 in \"endings\", of which the first is 0"},
        {R"({"ctx": "a", "endings": ["b", "c"], "label": -1})", "\"label\" is not the number"},
        {R"({"ctx": "a", "endings": ["b", "c"], "label": 0.5})", "\"label\" is not the number"},
        {R"({"ctx": "a", "endings": ["b", "c"], "label": ""})", "\"label\" is not the number"},
        {R"({"ctx": "a", "endings": ["b", "c"], "label": 18446744073709551615})",
         "\"label\" is not the number"},
        {R"({"text": 1})", "\"text\" is no text"},
        {R"({"text": " word "})", "\"text\" has no last word that others precede"},
        {R"({"text": ""})", "\"text\" has no last word"},
        {R"({"text": "last word"})", "is of another kind than the lines before it; use a file for each kind"},
    };
    const std::string first = R"({"context": "a", "choices": ["b", "c"], "answer": 0})";
    for (const auto& [line, what] : cases) {
        const auto read = questions_of(first + "\n \r\n" + line + "\n" + first, "q.jsonl");
        ASSERT_FALSE(read) << line;
        EXPECT_EQ(read.error().fault, Fault::usage);
        EXPECT_THAT(read.error().message, HasSubstr(std::string("q.jsonl:3: ") + what));
    }
    EXPECT_EQ(questions_of("\n\n", "q.jsonl").error().message, "q.jsonl: has no questions");
    const auto read = questions_of(first + "\r\n\n" + first, "q.jsonl");
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_EQ(read->size(), 2u);
    EXPECT_EQ((*read)[1].line, 3u);
}

// A gpt with large random weights, which finds some texts far likelier than others.
class Tasks : public ::testing::Test {
 protected:
    const Scratch scratch_;
    const GptShape shape_{
        .layers = 2, .hidden = 48, .heads = 2, .sequence = 16, .vocabulary = 260, .initial_deviation = 0.6f};
    const std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
    const std::unique_ptr<Device> device_ = open_cpu(1);
    const std::unique_ptr<LanguageModel> model_ = placed(*device_);

    std::unique_ptr<LanguageModel> placed(Device& device, Type type = Type::f32) const {
        auto model = make_language_model(shape_);
        model->place(device, 7, 1, type);
        return model;
    }
    Result<LanguageTask> read(const std::string& contents) {
        return read_task(scratch_.write("q.jsonl", contents), *tokenizer_, shape_);
    }
    TaskScores scored(const std::string& contents) {
        const auto task = read(contents);
        EXPECT_TRUE(task) << task.error().message;
        SingleCommunicator alone;
        const auto scores = scores_of(*task, *model_, *device_, alone);
        EXPECT_TRUE(scores) << scores.error().message;
        return *scores;
    }
    // Token by token.
    ChoiceScore plain_score(const std::string& context, const std::string& choice) const {
        std::string text = context.empty() ? choice : context + " " + choice;
        std::vector<std::int32_t> seen;
        if (context.empty()) seen.push_back(256);
        for (const char c : text) seen.push_back(static_cast<std::uint8_t>(c));
        const std::size_t count = choice.size() + (context.empty() ? 0 : 1);
        ChoiceScore score{0, true};
        for (std::size_t at = seen.size() - count; at < seen.size(); ++at) {
            const std::vector<std::int32_t> before(seen.begin() + static_cast<std::ptrdiff_t>(first_of(seen)),
                                                   seen.begin() + static_cast<std::ptrdiff_t>(at));
            const auto logits = device_->values_of<float>(model_->next_logits(device_->copy_of<std::int32_t>(
                Type::i32, {1, static_cast<std::int64_t>(before.size())}, before)));
            double sum = 0;
            for (const float one : logits) sum += std::exp(static_cast<double>(one));
            const auto token = static_cast<std::size_t>(seen[at]);
            score.log_probability += static_cast<double>(logits[token]) - std::log(sum);
            score.is_likeliest &= logits[token] == *std::ranges::max_element(logits);
        }
        return score;
    }
    std::size_t first_of(const std::vector<std::int32_t>& seen) const {
        const auto most = static_cast<std::size_t>(shape_.sequence) + 1;
        return seen.size() > most ? seen.size() - most : 0;
    }
};

TEST_F(Tasks, AChoiceHasTheProbabilityOfItsTokensOneAfterTheOther) {
    for (const auto& [context, choice] :
         std::vector<std::pair<std::string, std::string>>{{"ab", "c"},
                                                          {"ab", "cdefg"},
                                                          {"", "abc"},
                                                          {"a context that is too long", "abc"},
                                                          {"too long", "a whole sequenc"}}) {
        const auto task =
            read(fmt::format(R"({{"context": "{}", "choices": ["{}", "x"], "answer": 0}})", context, choice));
        ASSERT_TRUE(task) << task.error().message;
        const auto score = score_of(task->questions[0].choices[0], *model_, *device_);
        ASSERT_TRUE(score);
        const ChoiceScore plain = plain_score(context, choice);
        EXPECT_LT(plain.log_probability, -1);
        EXPECT_NEAR(score->log_probability, plain.log_probability, 1e-4 * std::abs(plain.log_probability))
            << context << choice;
        EXPECT_EQ(score->is_likeliest, plain.is_likeliest);
    }
}

TEST_F(Tasks, TheLikeliestChoiceIsTakenBySumAndByLength) {
    std::string contents;
    int right = 0, right_by_length = 0, differ = 0;
    constexpr int kCount = 40;
    const std::vector<std::string> words{"a", "bcd", "efghijklm", "no", "pqrstu"};
    for (int i = 0; i < kCount; ++i) {
        const std::string context = "q" + std::to_string(i * i);
        std::size_t best = 0, best_by_length = 0;
        std::vector<double> sums, by_length;
        for (const std::string& word : words) {
            sums.push_back(plain_score(context, word).log_probability);
            by_length.push_back(sums.back() / static_cast<double>(word.size()));
            if (sums.back() > sums[best]) best = sums.size() - 1;
            if (by_length.back() > by_length[best_by_length]) best_by_length = sums.size() - 1;
        }
        const std::size_t answer = i % 2 == 0 ? best : best_by_length;
        right += answer == best;
        right_by_length += answer == best_by_length;
        differ += best != best_by_length;
        contents += fmt::format(R"({{"ctx": "{}", "endings": ["{}"], "label": {}}})", context,
                                fmt::join(words, "\", \""), answer) +
                    "\n";
    }
    ASSERT_GT(differ, 5) << "else this shows nothing";
    const TaskScores scores = scored(contents);
    EXPECT_EQ(scores.questions, kCount);
    EXPECT_DOUBLE_EQ(scores.acc, static_cast<double>(right) / kCount);
    EXPECT_DOUBLE_EQ(*scores.acc_norm, static_cast<double>(right_by_length) / kCount);
    EXPECT_FALSE(scores.perplexity);
    EXPECT_EQ(task_line(*read(contents), scores),
              fmt::format("{}: 40 questions, acc {:.2f} %, acc_norm {:.2f} %",
                          (scratch_ / "q.jsonl").string(), scores.acc * 100, *scores.acc_norm * 100));

    for (const std::int64_t world : {2, 3})
        ThreadWorld(world).run([&](Communicator& ranks) {
            const auto device = open_cpu(1);
            const auto model = placed(*device);
            const auto found = scores_of(*read_task(scratch_ / "q.jsonl", *make_byte_tokenizer(), shape_),
                                         *model, *device, ranks);
            ASSERT_TRUE(found) << found.error().message;
            EXPECT_DOUBLE_EQ(found->acc, scores.acc);
            EXPECT_DOUBLE_EQ(*found->acc_norm, *scores.acc_norm);
        });
}

// It has learnt to say "night" again and again.
TEST_F(Tasks, ALastWordIsRightIfTheModelWouldHaveSaidIt) {
    constexpr std::int64_t kSamples = 64;
    std::string text;
    while (static_cast<std::int64_t>(text.size()) <= kSamples * shape_.sequence) text += "night ";
    Split samples{kSamples, {Type::u16, shape_.sequence, {}}, {}, {Type::u16, shape_.sequence, {}}, true};
    for (std::int64_t i = 0; i <= kSamples * shape_.sequence; ++i) {
        samples.features.bytes.push_back(static_cast<std::uint8_t>(text[static_cast<std::size_t>(i)]));
        samples.features.bytes.push_back(0);
    }
    Settings settings;
    settings.epochs = 10;
    settings.batch = 8;
    settings.rate.rate = 3e-3;
    settings.checkpoints.directory = scratch_ / "saved";
    ModelShape shape;
    shape.gpt = shape_;
    shape.gpt.initial_deviation = 0.02f;
    EXPECT_LT(outcome_of(train_saved(1, settings, {}, {samples, samples, "night"}, "gpt", shape)).last.loss,
              1);
    ASSERT_TRUE(load_values(*open_saved_model("--checkpoint", scratch_ / "saved"), *model_, *device_));

    std::string contents;
    double sum = 0;
    for (const auto& [context, word, is_right] : {std::tuple{"night night", "night", true},
                                                  {"night", "night", true},
                                                  {"night night", "nicht", false},
                                                  {"night night", "nights", false},
                                                  {"t", "night", true}}) {
        const ChoiceScore plain = plain_score(context, word);
        EXPECT_EQ(plain.is_likeliest, is_right) << context << word;
        sum += plain.log_probability;
        contents += fmt::format(R"({{"text": "{} {}"}})", context, word) + "\n";
    }
    const TaskScores scores = scored(contents);
    EXPECT_DOUBLE_EQ(scores.acc, 0.6);
    EXPECT_FALSE(scores.acc_norm);
    EXPECT_NEAR(*scores.perplexity / std::exp(-sum / 5), 1, 1e-3);
    EXPECT_THAT(task_line(*read(contents), scores),
                HasSubstr("q.jsonl: 5 last words, acc 60.00 %, perplexity "));
}

TEST_F(Tasks, WhatCannotBeReadIsSaidWithItsLine) {
    const auto refused =
        read("\n{\"context\": \"a\", \"choices\": [\"b\", \"a whole sequence\"], \"answer\": 0}");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, (scratch_ / "q.jsonl").string() +
                                           ":2: a choice has 17 tokens, and the model sees 16 at a time");
    EXPECT_FALSE(read_task(scratch_ / "none.jsonl", *tokenizer_, shape_));
}

}  // namespace
}  // namespace dp::trainer
