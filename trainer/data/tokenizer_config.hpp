// SPDX-License-Identifier: Apache-2.0
//
// What lies beside a tokenizer.json of Hugging Face's and says which of its tokens ends a text: tokenizer_config.json, whose
// eos_token is a token's text, and generation_config.json, whose eos_token_id is its number. open_tokenizer_file() asks, and
// `trainer export` writes both. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/failure.hpp"

namespace dp::trainer {

inline constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
inline constexpr std::string_view kGenerationConfig = "generation_config.json";

// nullopt where they say nothing. An error is the reason alone.
Try<std::optional<std::string>> eos_token_in(const std::string& tokenizer_config);
// Of several, as models that also end at the end of a turn have them, the first.
Try<std::optional<std::int64_t>> eos_token_id_in(const std::string& generation_config);

// `given`: the tokenizer's own tokenizer_config.json, which is kept but for what it lacks; "": it has none. `sequence`: of the
// model, where there is one: longer texts it cannot take.
std::string tokenizer_config_text(const std::string& given, const std::string& eos_token,
                                  std::optional<std::int64_t> sequence = std::nullopt);
std::string generation_config_text(std::int64_t eos_token_id);

}  // namespace dp::trainer
