// SPDX-License-Identifier: Apache-2.0
//
// Sizes of gpt that have a name: --gpt-size.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// Null where there is none of that name.
inline const GptSize* find_gpt_size(std::string_view name) {
    for (const auto& size : kGptSizes)
        if (size.name == name) return &size;
    return nullptr;
}

}  // namespace dp::trainer
