// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's config.json, as transformers' GPT2Config writes it: what it says besides the tensors' shapes. What it leaves out has
// GPT2Config's defaults, which are what the trainer's gpt does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/base/result.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

struct Gpt2Config {
    std::int64_t heads = 12;
};

// Refuses what is another function of the tensors than gpt. The error is the reason alone.
Try<Gpt2Config> read_gpt2_config(std::string_view text);

// For GPT2LMHeadModel.from_pretrained(). `end_of_text`: the token, where it is known.
std::string gpt2_config_text(const GptShape& shape, std::optional<std::int64_t> end_of_text);

}  // namespace dp::trainer
