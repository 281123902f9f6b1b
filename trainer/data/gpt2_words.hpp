// SPDX-License-Identifier: Apache-2.0
//
// Cuts a text into words as GPT-2 does, before its byte-pair merges: words, numbers and other signs, each
// with the blank before it; the blanks between them; and what English hangs on ('s, 't, ...). Nothing is
// lost: the words, one after another, are the text. gpt2_tokenizer.cpp calls it.
#ifndef TRAINER_DATA_GPT2_WORDS_HPP
#define TRAINER_DATA_GPT2_WORDS_HPP

#include <functional>
#include <memory>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

class Gpt2Words {
 public:
    Gpt2Words();
    ~Gpt2Words();

    // Calls `take` for each word in turn. An error where the text is not UTF-8; then it was called for none.
    Result<void> split(std::string_view text, const std::function<void(std::string_view)>& take);

 private:
    struct Pattern;
    std::unique_ptr<Pattern> pattern_;
};

}  // namespace dp::trainer

#endif
