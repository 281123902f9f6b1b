// SPDX-License-Identifier: Apache-2.0
#include "trainer/formats/questions.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string without_space_at_its_end(const std::string& text) {
    return text.substr(0, text.find_last_not_of(kSpace) + 1);
}
std::string without_space_before(const std::string& text) {
    return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

struct Names {
    const char *context, *choices, *answer;
};
constexpr Names kNames[] = {{"context", "choices", "answer"}, {"ctx", "endings", "label"}};

Try<std::string> text_in(const nlohmann::json& line, const char* name) {
    const auto found = line.find(name);
    if (found == line.end()) return dp::fail(fmt::format("lacks \"{}\"", name));
    if (!found->is_string()) return dp::fail(fmt::format("\"{}\" is no text", name));
    return found->get<std::string>();
}

Try<std::size_t> answer_in(const nlohmann::json& line, const Names& names, std::size_t choices) {
    const auto found = line.find(names.answer);
    if (found == line.end()) return dp::fail(fmt::format("lacks \"{}\"", names.answer));
    std::optional<std::int64_t> number;
    if (found->is_number_integer()) number = found->get<std::int64_t>();
    if (found->is_string())
        if (const auto parsed = parse_number<std::int64_t>(found->get<std::string>())) number = *parsed;
    if (!number || *number < 0 || static_cast<std::uint64_t>(*number) >= choices)
        return dp::fail(
            fmt::format("\"{}\" is not the number of one of the {} in \"{}\", of which the first is 0",
                        names.answer, choices, names.choices));
    return static_cast<std::size_t>(*number);
}

Try<Question> choice_question(const nlohmann::json& line, const Names& names) {
    Question question;
    const std::string context = DP_TRY(text_in(line, names.context));
    question.context = without_space_at_its_end(context);
    const auto choices = line.find(names.choices);
    if (choices == line.end()) return dp::fail(fmt::format("lacks \"{}\"", names.choices));
    if (!choices->is_array() || choices->size() < 2)
        return dp::fail(fmt::format("\"{}\" is no list of two texts or more", names.choices));
    for (const nlohmann::json& choice : *choices) {
        if (!choice.is_string()) return dp::fail(fmt::format("\"{}\" has what is no text", names.choices));
        question.choices.push_back(without_space_before(choice.get<std::string>()));
        if (question.choices.back().empty())
            return dp::fail(fmt::format("\"{}\" has an empty text", names.choices));
    }
    question.answer = DP_TRY(answer_in(line, names, question.choices.size()));
    return question;
}

Try<Question> last_word_question(const nlohmann::json& line) {
    const std::string whole = DP_TRY(text_in(line, "text"));
    const std::string text = without_space_at_its_end(whole);
    const auto space = text.find_last_of(kSpace);
    const std::string context =
        without_space_at_its_end(space == std::string::npos ? "" : text.substr(0, space));
    if (context.empty()) return dp::fail("\"text\" has no last word that others precede");
    return Question{context, {text.substr(space + 1)}};
}

}  // namespace

Try<Question> question_of(std::string_view text) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    if (line.is_discarded()) return dp::fail("is no JSON");
    if (!line.is_object()) return dp::fail("is no object of JSON");
    for (const Names& names : kNames)
        if (line.contains(names.context)) return choice_question(line, names);
    if (line.contains("text")) return last_word_question(line);
    return dp::fail(
        "has neither \"context\" (with \"choices\" and \"answer\"), nor \"ctx\" (with \"endings\" and "
        "\"label\"), nor \"text\"");
}

Result<std::vector<Question>> questions_of(std::string_view contents, const std::string& name) {
    std::vector<Question> questions;
    for (std::size_t number = 1; !contents.empty(); ++number) {
        const auto end = std::min(contents.find('\n'), contents.size());
        const std::string_view line = contents.substr(0, end);
        contents.remove_prefix(std::min(end + 1, contents.size()));
        if (line.find_first_not_of(kSpace) == std::string_view::npos) continue;
        auto question = question_of(line);
        if (question && !questions.empty() &&
            question->asks_last_word() != questions.front().asks_last_word())
            question = dp::fail("is of another kind than the lines before it; use a file for each kind");
        if (!question) return fail(Fault::usage, "{}:{}: {}", name, number, question.error().message);
        question->line = number;
        questions.push_back(*std::move(question));
    }
    if (questions.empty()) return fail(Fault::usage, "{}: has no questions", name);
    return questions;
}

}  // namespace dp::trainer
