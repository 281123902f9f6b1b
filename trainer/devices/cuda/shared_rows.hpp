// SPDX-License-Identifier: Apache-2.0
//
// Which rows of logits a block keeps in its shared memory, so that it reads them once (loss_kernels.cu). Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dp::trainer::kernels {

// Bytes of shared memory for a row of so many numbers; 0 where it is read twice, from the caches if it is short. `most`: that a block
// may have, its sums among them.
constexpr std::size_t bytes_of_kept_row(std::int64_t numbers, std::size_t size, std::size_t most) {
    // Eight blocks' short rows stay in an SM's cache. A row keeps its offset from a multiple of 16 bytes.
    constexpr std::size_t kShort = 24 << 10, kBefore = 16, kSums = 512;
    const std::size_t bytes = static_cast<std::size_t>(numbers) * size + kBefore;
    return bytes > kShort && bytes + kSums <= most ? bytes : 0;
}

}  // namespace dp::trainer::kernels
