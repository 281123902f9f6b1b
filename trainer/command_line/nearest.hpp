// SPDX-License-Identifier: Apache-2.0
//
// What an unknown word on the command line may have meant. Pure; parse.cpp asks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dp::trainer {

// The most similar name, if it is similar enough: a few letters off, or longer.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names);

// Our name for an option of Megatron-LM, PyTorch or Hugging Face's trainer.
std::optional<std::string_view> ours_for(std::string_view name);

}  // namespace dp::trainer
