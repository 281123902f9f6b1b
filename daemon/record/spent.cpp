// SPDX-License-Identifier: Apache-2.0
#include "record/spent.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

namespace dp {
namespace {

// "48 s", "12 min", "3.4 h"
std::string time_in_words(double seconds) {
    char text[32];
    if (seconds < 120)
        std::snprintf(text, sizeof text, "%.0f s", seconds);
    else if (seconds < 7200)
        std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
    else
        std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
    return text;
}

}  // namespace

std::string spent_in_words(const SpentTimes& spent) {
    const double all = std::accumulate(spent.begin(), spent.end(), 0.0);
    std::vector<size_t> order(kSpent);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return spent[a] > spent[b]; });
    std::string out = time_in_words(all);
    const char* separator = ": ";
    for (const size_t what : order) {
        const long percent = std::lround(100 * spent[what] / std::max(all, 1e-9));
        if (percent < 1) break;
        const bool may_wait =
            static_cast<Spent>(what) == Spent::communication && of(spent, Spent::waiting) == 0;
        out += separator + std::string(kSpentWords[what].title) + (may_wait ? " and waiting " : " ") +
               std::to_string(percent) + " %";
        separator = ", ";
    }
    return out;
}

}  // namespace dp
