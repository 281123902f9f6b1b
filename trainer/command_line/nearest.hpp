// SPDX-License-Identifier: Apache-2.0
//
// What a word that is no option or subcommand may have meant. Pure; parse.cpp asks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dp::trainer {

// Of the names the one that is most like the word, if it is like enough: a few letters off, or longer.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names);

// What Megatron-LM, PyTorch and Hugging Face's trainer call an option of ours, and ours.
std::optional<std::string_view> ours_for(std::string_view name);

}  // namespace dp::trainer
