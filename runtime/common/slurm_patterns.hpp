// SPDX-License-Identifier: Apache-2.0
//
// File names with Slurm's patterns (sbatch(1)). Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace dp {

// The pattern with each "%X" that `values` has replaced; "%%" is a percent sign, and any other one stays as it is.
inline std::string fill_in(std::string_view pattern, const std::map<char, std::string>& values) {
    std::string out;
    for (size_t i = 0; i < pattern.size(); ++i) {
        const bool is_pattern = pattern[i] == '%' && i + 1 < pattern.size();
        const auto value = is_pattern ? values.find(pattern[i + 1]) : values.end();
        if (value != values.end())
            out += value->second;
        else
            out += pattern[i];
        if (value != values.end() || (is_pattern && pattern[i + 1] == '%')) ++i;
    }
    return out;
}

}  // namespace dp
