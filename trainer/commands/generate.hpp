// SPDX-License-Identifier: Apache-2.0
//
// `trainer generate`: text from a checkpoint of gpt. main.cpp calls it.
#pragma once

#include <filesystem>
#include <span>

#include "trainer/base/random.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

struct GenerateOptions {
    std::filesystem::path checkpoint_directory;
    std::filesystem::path data_directory;  // of the tokenizer
    std::string prompt;
    std::int64_t tokens = 100;
    double temperature = 1;
    std::int64_t top_k = 0;  // 0: all
    std::uint64_t seed = 1;
    Precision precision = Precision::fp32;  // of what flows through the model
};

// The next token: drawn by the probabilities that the logits stand for, divided by the temperature first
// (0: the likeliest, the first of equals), among the top_k likeliest (0: among all).
std::size_t pick_token(std::span<const float> logits, double temperature, std::int64_t top_k, Random& random);

// Prints the prompt and what the model makes follow it, on the CPU, as it comes.
Result<void> generate(const GenerateOptions& options);

}  // namespace dp::trainer
