// SPDX-License-Identifier: Apache-2.0
//
// Questions for a language model (trainer evaluate --tasks): a file of lines in JSON (JSONL), one question each, under any of these
// names:
//
//   {"context": "The sky is", "choices": ["blue", "square"], "answer": 0}
//   {"ctx": "The sky is", "endings": ["blue", "square"], "label": 0}         as HellaSwag's; a label may be in quotes
//   {"text": "The sky is blue"}                                              as LAMBADA's: the last word is asked for
//
// Answers count from 0; other keys are passed over, as are empty lines. All questions of a file are of one kind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct Question {
    std::string context;               // without white space at its end
    std::vector<std::string> choices;  // without white space at their beginning; a last word: one
    std::size_t answer = 0;
    std::size_t line = 0;  // of the file, from 1

    bool asks_last_word() const { return choices.size() == 1; }
};

// Pure. The error is the reason alone.
Try<Question> question_of(std::string_view line);

// At least one. `name`: what the file is called in errors, which have the line, too.
Result<std::vector<Question>> questions_of(std::string_view contents, const std::string& name);

}  // namespace dp::trainer
