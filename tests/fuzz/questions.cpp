// SPDX-License-Identifier: Apache-2.0
//
// A file of questions (trainer evaluate --tasks): whatever is in it, it is refused in one line that says where, or each question has
// choices that say something, and an answer among them.
#include "trainer/formats/questions.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    using namespace dp::trainer;
    const auto questions = questions_of(fuzz::text_of(data, size), "file");
    if (!questions) {
        const std::string& message = questions.error().message;
        fuzz::must(message.rfind("file:", 0) == 0, "a refusal says where");
        fuzz::must(message.find('\n') == std::string::npos, "a refusal is one line");
        return 0;
    }
    fuzz::must(!questions->empty(), "a file without questions is refused");
    size_t line = 0;
    for (const Question& question : *questions) {
        fuzz::must(question.line > line, "lines are counted");
        line = question.line;
        fuzz::must(question.answer < question.choices.size(), "the answer is one of the choices");
        fuzz::must(question.asks_last_word() == questions->front().asks_last_word(), "all are of one kind");
        fuzz::must(!question.asks_last_word() || !question.context.empty(), "words precede a last word");
        fuzz::must(question.context.empty() || question.context.back() != ' ', "no space ends a context");
        for (const std::string& choice : question.choices)
            fuzz::must(!choice.empty() && choice.front() != ' ', "a choice says something");
    }
    return 0;
}
