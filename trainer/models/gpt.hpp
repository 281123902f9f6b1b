// SPDX-License-Identifier: Apache-2.0
//
// What gpt has beyond a Model: named sizes (--gpt-size), and logits, for generate.cpp.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/models/model.hpp"

namespace dp::trainer {

struct GptSize {
    std::string_view name;
    std::int64_t layers, hidden, heads, sequence;
};

// The first is for CPUs, and the default; the others are GPT-2's four (Radford et al. 2019).
inline constexpr std::array<GptSize, 5> kGptSizes{{{"10M", 6, 384, 6, 256},
                                                   {"124M", 12, 768, 12, 1024},
                                                   {"355M", 24, 1024, 16, 1024},
                                                   {"774M", 36, 1280, 20, 1024},
                                                   {"1.5B", 48, 1600, 25, 1024}}};

inline std::vector<std::string> gpt_size_names() {
    std::vector<std::string> names;
    for (const auto& size : kGptSizes) names.emplace_back(size.name);
    return names;
}

class LanguageModel : public Model {
 public:
    // Logits for the token after the last one; `tokens` is i32 [1, length], at most a sequence. Returns [1,
    // vocabulary] in the type that it was placed with. Valid until the next call of any method.
    virtual Tensor next_logits(const Tensor& tokens) = 0;
    // As evaluate(), of one sequence of any length up to the model's, i32 [1, length], and of its last `count` targets alone: adds up
    // their losses, and how many of them were the likeliest token.
    virtual void evaluate_last(const Batch& batch, std::int64_t count, const Tensor& metrics) = 0;
};

std::unique_ptr<LanguageModel> make_language_model(const GptShape& shape);

}  // namespace dp::trainer
