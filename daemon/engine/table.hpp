// SPDX-License-Identifier: Apache-2.0
//
// Text in columns.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace dp {

// Lines of cells, two spaces between the columns, `indent` before them, no trailing blanks. Columns in
// `to_right` are right-aligned. Lines may be shorter.
inline std::string aligned(const std::vector<std::vector<std::string>>& lines, size_t indent = 0,
                           const std::vector<bool>& to_right = {}) {
    std::vector<size_t> widths;
    for (const auto& line : lines) {
        widths.resize(std::max(widths.size(), line.size()));
        for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
    }
    std::string out;
    for (const auto& line : lines) {
        std::string text(indent, ' ');
        for (size_t i = 0; i < line.size(); ++i) {
            const std::string gap(widths[i] - line[i].size(), ' ');
            const bool right = i < to_right.size() && to_right[i];
            text += (i == 0 ? "" : "  ") + (right ? gap + line[i] : line[i] + gap);
        }
        text.resize(text.find_last_not_of(' ') + 1);
        out += text + "\n";
    }
    return out;
}

}  // namespace dp
