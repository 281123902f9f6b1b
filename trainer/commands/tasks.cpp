// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "trainer/base/files.hpp"
#include "trainer/formats/questions.hpp"

namespace dp::trainer {
namespace {

Result<ChoiceTokens> tokens_of(const Question& question, const std::string& choice, Tokenizer& tokenizer,
                               std::int64_t sequence) {
    std::vector<Token> all, last;
    DP_TRY(tokenizer.encode(question.context, all));
    if (all.empty()) all.push_back(tokenizer.end_of_text());
    DP_TRY(tokenizer.encode((question.context.empty() ? "" : " ") + choice, last));
    if (static_cast<std::int64_t>(last.size()) > sequence)
        return fail(Fault::usage, "a choice has {} tokens, and the model sees {} at a time", last.size(),
                    sequence);
    all.insert(all.end(), last.begin(), last.end());
    const auto most = static_cast<std::size_t>(sequence) + 1;  // the last one is not seen
    const std::size_t lost = all.size() > most ? all.size() - most : 0;
    return ChoiceTokens{{all.begin() + static_cast<std::ptrdiff_t>(lost), all.end()},
                        static_cast<std::int64_t>(last.size()),
                        choice.size()};
}

// Sums over questions.
struct Tally {
    double right = 0, right_by_length = 0, log_probability = 0;
};

Result<void> answer(const LanguageTask::Item& question, LanguageModel& model, Device& device, Tally& tally) {
    std::vector<double> sums, by_length;
    bool is_likeliest = false;
    for (const ChoiceTokens& choice : question.choices) {
        const auto score = DP_TRY(score_of(choice, model, device));
        sums.push_back(score.log_probability);
        by_length.push_back(score.log_probability / static_cast<double>(choice.bytes));
        is_likeliest = score.is_likeliest;
    }
    const auto takes = [&](const std::vector<double>& scores) {
        const auto best = std::ranges::max_element(scores) - scores.begin();
        return static_cast<std::size_t>(best) == question.answer;
    };
    const bool asks_last_word = question.choices.size() == 1;
    tally.right += (asks_last_word ? is_likeliest : takes(sums)) ? 1 : 0;
    tally.right_by_length += takes(by_length) ? 1 : 0;
    tally.log_probability += sums[question.answer];
    return {};
}

}  // namespace

Result<LanguageTask> read_task(const std::filesystem::path& file, Tokenizer& tokenizer,
                               const GptShape& shape) {
    const std::string contents = DP_TRY(read_file(file)), name = file.string();
    const auto questions = DP_TRY(questions_of(contents, name));
    LanguageTask task{name, {}, questions.front().asks_last_word(), sha256(contents)};
    for (const Question& question : questions) {
        LanguageTask::Item item{{}, question.answer};
        for (const std::string& choice : question.choices) {
            auto tokens = tokens_of(question, choice, tokenizer, shape.sequence);
            if (!tokens) return fail(Fault::usage, "{}:{}: {}", name, question.line, tokens.error().message);
            item.choices.push_back(*std::move(tokens));
        }
        task.questions.push_back(std::move(item));
    }
    return task;
}

Result<ChoiceScore> score_of(const ChoiceTokens& choice, LanguageModel& model, Device& device) {
    const auto length = static_cast<std::int64_t>(choice.tokens.size()) - 1;
    const std::span all(choice.tokens);
    const Batch batch{device.copy_of<std::int32_t>(Type::i32, {1, length}, all.first(all.size() - 1)),
                      device.copy_of<std::int32_t>(Type::i32, {1, length}, all.subspan(1)),
                      {}};
    const Tensor metrics = device.make(Type::f64, {2});
    model.evaluate_last(batch, choice.count, metrics);
    const auto sums = device.values_of<double>(metrics);
    DP_TRY(device.status());
    return ChoiceScore{-sums[0], sums[1] == static_cast<double>(choice.count)};
}

Result<TaskScores> scores_of(const LanguageTask& task, LanguageModel& model, Device& device,
                             Communicator& ranks) {
    Tally tally;
    const auto count = static_cast<std::int64_t>(task.questions.size());
    // Dealt out: long questions often lie together.
    for (std::int64_t i = ranks.rank(); i < count; i += ranks.size())
        DP_TRY(answer(task.questions[static_cast<std::size_t>(i)], model, device, tally));
    const Tensor sums = device.copy_of<double>(
        Type::f64, {3}, std::array{tally.right, tally.right_by_length, tally.log_probability});
    DP_TRY(ranks.all_reduce(sums, Reduction::sum));
    DP_TRY(ranks.confirm());
    const auto all = device.values_of<double>(sums);
    const auto mean = [&](double sum) { return sum / static_cast<double>(count); };
    if (task.asks_last_word) return TaskScores{count, mean(all[0]), std::nullopt, std::exp(-mean(all[2]))};
    return TaskScores{count, mean(all[0]), mean(all[1]), std::nullopt};
}

std::string task_line(const LanguageTask& task, const TaskScores& scores) {
    std::string line = fmt::format("{}: {} {}{}, acc {:.2f} %", task.file, scores.questions,
                                   task.asks_last_word ? "last word" : "question",
                                   scores.questions == 1 ? "" : "s", scores.acc * 100);
    if (scores.acc_norm) line += fmt::format(", acc_norm {:.2f} %", *scores.acc_norm * 100);
    if (scores.perplexity) line += fmt::format(", perplexity {:.4g}", *scores.perplexity);
    return line;
}

}  // namespace dp::trainer
