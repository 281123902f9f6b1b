// SPDX-License-Identifier: Apache-2.0
//
// Numbers as Slurm, the kernel and people list them: "0,2-5".
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace dp {

// "5" or "2-5", first and last as written; nullopt if the part is neither.
template <typename Number>
std::optional<std::pair<Number, Number>> parse_range(std::string_view part) {
    const size_t dash = part.find('-');
    const auto first = parse_number<Number>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number<Number>(part.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    return std::pair(*first, *last);
}

// All numbers of a list, as written; nullopt if a part is not a range, runs backwards or exceeds `most`, or
// if there are more than that.
template <typename Number>
std::optional<std::vector<Number>> parse_ranges(std::string_view list, Number most) {
    std::vector<Number> numbers;
    for (std::string_view part : split(list, ',')) {
        const auto range = parse_range<Number>(part);
        if (!range || range->second < range->first || range->second > most) return std::nullopt;
        for (Number n = range->first; n <= range->second; ++n) numbers.push_back(n);
        if (numbers.size() > size_t{most} + 1) return std::nullopt;
    }
    return numbers;
}

}  // namespace dp
