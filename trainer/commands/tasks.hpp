// SPDX-License-Identifier: Apache-2.0
//
// Multiple choice for gpt (trainer evaluate --tasks): of the choices of a question the model takes the one that it finds likeliest to
// follow. A question with one choice asks for a last word.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/models/gpt.hpp"

namespace dp::trainer {

// A choice as the model reads it.
struct ChoiceTokens {
    std::vector<std::int32_t>
        tokens;          // what precedes it, as much as the model sees at a time, and the choice
    std::int64_t count;  // the last of these are the choice's
    std::size_t bytes;   // of the choice's text
};

struct LanguageTask {
    struct Item {
        std::vector<ChoiceTokens> choices;
        std::size_t answer;
    };
    std::string file;
    std::vector<Item> questions;
    bool asks_last_word;
    std::string sha256;  // of the file
};

// Of all questions, on all ranks together; named as the field's harnesses name them.
struct TaskScores {
    std::int64_t questions;
    double
        acc;  // 0..1: of multiple choice, of the sum of a choice's log-probabilities; of a last word, if each of its tokens was the likeliest
    std::optional<double> acc_norm;    // of multiple choice: of that sum by the choice's bytes
    std::optional<double> perplexity;  // of the last words
};

// Reads formats/questions.hpp's. A space is put between context and choice; where there is no context, a text begins. Long contexts
// lose their beginning.
Result<LanguageTask> read_task(const std::filesystem::path& file, Tokenizer& tokenizer,
                               const GptShape& shape);

// The sum of the log-probabilities of the choice's tokens, and whether each of them was the likeliest.
struct ChoiceScore {
    double log_probability;
    bool is_likeliest;
};
Result<ChoiceScore> score_of(const ChoiceTokens& choice, LanguageModel& model, Device& device);

// Each rank answers some of the questions. Every rank calls. The model has been placed and loaded.
Result<TaskScores> scores_of(const LanguageTask& task, LanguageModel& model, Device& device,
                             Communicator& ranks);

// Pure: the line for people.
std::string task_line(const LanguageTask& task, const TaskScores& scores);

}  // namespace dp::trainer
