// SPDX-License-Identifier: Apache-2.0
//
// `trainer generate`: text from a checkpoint of gpt. main.cpp calls it.
#pragma once

#include <filesystem>
#include <span>

#include "trainer/base/random.hpp"
#include "trainer/training/settings.hpp"

namespace dp::trainer {

// How the next token is drawn, by the probabilities that the logits stand for.
struct Drawing {
    double temperature =
        1;  // which the logits are divided by first; 0: the likeliest token, the first of equals
    std::int64_t top_k = 0;  // among so many likeliest; 0: among all
    // And of these among the likeliest ones whose probabilities sum to so much (nucleus sampling: Holtzman et al., "The Curious
    // Case of Neural Text Degeneration", ICLR 2020).
    double top_p = 1;
};

struct GenerateOptions {
    std::filesystem::path checkpoint_directory;
    std::filesystem::path data_directory;  // of the tokenizer
    std::string prompt;
    std::int64_t tokens = 100;
    Drawing drawing;
    std::uint64_t seed = 1;
    Precision precision = Precision::fp32;  // of what flows through the model
    bool averaged = false;                  // with the weights' average
};

std::size_t pick_token(std::span<const float> logits, const Drawing& how, Random& random);

// Prints the prompt and what the model makes follow it, on the CPU, as it comes.
Result<void> generate(const GenerateOptions& options);

}  // namespace dp::trainer
