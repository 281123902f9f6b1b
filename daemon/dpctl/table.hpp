// SPDX-License-Identifier: Apache-2.0
//
// Text in columns, as dpctl prints it.
#pragma once

#include <string>
#include <vector>

namespace dp {

// Lines of cells, two spaces between the columns and `indent` before them, nothing behind the last. Those
// that `to_right` marks have their cells at the right. Not every line needs all columns.
std::string aligned(const std::vector<std::vector<std::string>>& lines, size_t indent = 0,
                    const std::vector<bool>& to_right = {});

}  // namespace dp
