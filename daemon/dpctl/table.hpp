// SPDX-License-Identifier: Apache-2.0
//
// Text in columns, as dpctl prints it.
#pragma once

#include <string>
#include <vector>

namespace dp {

// Lines of cells, two spaces between the columns, `indent` before them, no trailing blanks. Columns in
// `to_right` are right-aligned. Lines may be shorter.
std::string aligned(const std::vector<std::vector<std::string>>& lines, size_t indent = 0,
                    const std::vector<bool>& to_right = {});

}  // namespace dp
