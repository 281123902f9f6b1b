// SPDX-License-Identifier: Apache-2.0
//
// The HTML of profile_page.cpp and profile_charts.cpp: text that is safe, and tables that screen readers can read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dp::trainer {

// As it may stand between tags and in an attribute's quotes; control characters are shown as U+FFFD.
std::string escaped(std::string_view text);

// Cells are HTML; the first of each row is the row's head. Columns are of numbers, but for those whose head begins with "<", which in
// fmt aligns to the left. The caption is text, and names the region that scrolls.
std::string html_table(std::string_view caption, const std::vector<std::string_view>& heads,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace dp::trainer
