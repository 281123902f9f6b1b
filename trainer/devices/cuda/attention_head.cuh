// SPDX-License-Identifier: Apache-2.0
//
// The addresses of one head of one sequence. For both files of attention kernels.
#pragma once

#include <cstdint>

#include "trainer/devices/device.hpp"

namespace dp::trainer::kernels {

// `item`: the head's number among all heads of all sequences.
struct Head {
    int size;
    std::int64_t sequence, columns;
    std::int64_t first_row;  // of the sequence, among all rows
    std::int64_t column;     // of the head
    std::int64_t sums;       // of its first query

    __device__ Head(const Attention& a, std::int64_t row_length, std::int64_t item)
        : size(static_cast<int>(row_length / a.heads)),
          sequence(a.sequence),
          columns(row_length),
          first_row(item / a.heads * a.sequence),
          column(item % a.heads * size),
          sums(item * a.sequence) {}
    // part: 0 queries, 1 keys, 2 values.
    __device__ std::int64_t in_qkv(std::int64_t token, int part) const {
        return (first_row + token) * 3 * columns + part * columns + column;
    }
    __device__ std::int64_t in_y(std::int64_t token) const { return (first_row + token) * columns + column; }
};

}  // namespace dp::trainer::kernels
