// SPDX-License-Identifier: Apache-2.0
//
// Splits a text into words as GPT-2 does before its byte-pair merges: words, numbers and other signs, each
// with the blank before it; the blanks between them; and English suffixes ('s, 't, ...). Nothing is lost: the
// concatenated words are the text. Called by byte_pair_tokenizer.cpp.
#pragma once

#include <functional>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// Calls `take` for each word in turn. Fails if the text is not UTF-8, before any call.
Result<void> split_words(std::string_view text, const std::function<void(std::string_view)>& take);

}  // namespace dp::trainer
