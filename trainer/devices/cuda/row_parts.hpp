// SPDX-License-Identifier: Apache-2.0
//
// Into how many parts the rows of a matrix are split for column sums (row_sums.cuh), each of which a block adds up.
// Pure: it depends on the numbers alone, so the sums have the same bits on each GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dp::trainer::kernels {

struct RowParts {
    std::int64_t rows;  // of each part; the last may have fewer
    std::int64_t count;
};

// At most `most` parts, of at least `least` rows.
constexpr RowParts row_parts(std::int64_t rows, std::int64_t least, std::int64_t most) {
    const std::int64_t of_part = std::max(least, (rows + most - 1) / most);
    return {of_part, std::max<std::int64_t>(1, (rows + of_part - 1) / of_part)};
}

// Of layer norm's backward pass. kMostSums / 8 threads, of 72 registers, run at once on 100 SMs, and both sums of all parts fit the
// 8 MiB that kernels are counted with. Parts of fewer than kLeastRows rows would write as much as they read.
constexpr RowParts layer_norm_parts(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kLeastRows = 16, kMostSums = 700 << 10;
    return row_parts(rows, kLeastRows, std::max<std::int64_t>(1, kMostSums / columns));
}

}  // namespace dp::trainer::kernels
