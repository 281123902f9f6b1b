// SPDX-License-Identifier: Apache-2.0
//
// Statistics of repeated measurements. Used by `trainer measure-performance` and `trainer compile`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace dp::trainer {

struct Spread {
    double min, p5, median, p95, max;
};

// Pure. Needs at least one number, in any order; percentiles between two numbers are interpolated.
inline Spread spread_of(std::vector<double> numbers) {
    std::sort(numbers.begin(), numbers.end());
    const auto at = [&](double part) {
        const double place = part * static_cast<double>(numbers.size() - 1);
        const auto low = static_cast<std::size_t>(place);
        const std::size_t high = std::min(low + 1, numbers.size() - 1);
        return std::lerp(numbers[low], numbers[high], place - static_cast<double>(low));
    };
    return {numbers.front(), at(0.05), at(0.5), at(0.95), numbers.back()};
}

}  // namespace dp::trainer
