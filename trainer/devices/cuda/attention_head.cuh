// SPDX-License-Identifier: Apache-2.0
//
// What both files of attention kernels share: the head of one sequence that a block works on, and the choice
// of a kernel by the size of a head.
//
// The blocks of a head come one after another: what they all read, the head's keys and values or its queries and gradients, is
// then still in the GPU's cache. (One part of all heads after another took 4.7 times the memory traffic on an H100.)
#pragma once

#include <cstdint>
#include <type_traits>

#include "trainer/devices/attention_dropout.hpp"

namespace dp::trainer::kernels {

struct Head {
    int parts;          // blocks of a head, each with `own` tokens
    int part;           // the block's, among them
    std::int64_t item;  // among all heads of all sequences
    int size;
    std::int64_t sequence, columns;
    std::int64_t first_row;      // of the sequence, among all rows
    std::int64_t column;         // of the head
    std::int64_t sums;           // of its first query
    const std::int32_t* starts;  // of the sequence; null: 0
    AttentionDropout dropout;

    // `place`: among the parts of all heads.
    __device__ Head(const Attention& a, std::int64_t row_length, std::int64_t own, unsigned place)
        : parts(static_cast<int>((a.sequence + own - 1) / own)),
          part(static_cast<int>(place % static_cast<unsigned>(parts))),
          item(place / static_cast<unsigned>(parts)),
          size(static_cast<int>(row_length / a.heads)),
          sequence(a.sequence),
          columns(row_length),
          first_row(item / a.heads * a.sequence),
          column(item % a.heads * size),
          sums(item * a.sequence),
          starts(a.starts != nullptr ? a.starts + first_row : nullptr),
          dropout(a, item) {}
    __device__ Head(const Attention& a, std::int64_t row_length, int own)
        : Head(a, row_length, own, blockIdx.x) {}
    // The first key that this query sees.
    __device__ int start(std::int64_t query) const {
        return starts != nullptr && query < sequence ? starts[query] : 0;
    }
    __device__ float scale() const { return rsqrtf(static_cast<float>(size)); }  // of the scores
    // what: 0 queries, 1 keys, 2 values.
    __device__ std::int64_t in_qkv(std::int64_t token, int what) const {
        return (first_row + token) * 3 * columns + what * columns + column;
    }
    __device__ std::int64_t in_y(std::int64_t token) const { return (first_row + token) * columns + column; }
};

// ---- on the host. y: of the attention.

// Calls `queue` with the size of a head, rounded up to a multiple of 32, and whether there is dropout, as
// constants.
template <typename Queue>
void with_head_size(const Attention& a, const Tensor& y, Queue queue) {
    const auto with = [&](auto size) {
        a.dropout.rate > 0 ? queue(size, std::true_type{}) : queue(size, std::false_type{});
    };
    const std::int64_t size = y.columns() / a.heads;
    if (size <= 32) return with(std::integral_constant<int, 32>{});
    if (size <= 64) return with(std::integral_constant<int, 64>{});
    if (size <= 96) return with(std::integral_constant<int, 96>{});
    with(std::integral_constant<int, 128>{});
}

// One block per head, sequence and `own` tokens.
inline dim3 blocks_of(const Attention& a, const Tensor& y, std::int64_t own) {
    return {static_cast<unsigned>(y.rows() / a.sequence * a.heads * ((a.sequence + own - 1) / own))};
}

}  // namespace dp::trainer::kernels
