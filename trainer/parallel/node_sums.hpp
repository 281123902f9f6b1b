// SPDX-License-Identifier: Apache-2.0
//
// Adds up vectors of the ranks of a node. Called by node_communicator.cpp.
#pragma once

#include <algorithm>
#include <span>

#include "trainer/base/communicator.hpp"
#include "trainer/base/partition.hpp"

namespace dp::trainer {

// Adds the others' slices to the first one's, in order.
void add_up(std::span<float* const> numbers, const Shard& slice);

// Reduces `others` into `numbers`, one by one.
template <typename Number>
void reduce_into(Number* numbers, const Number* others, std::int64_t count, Reduction reduction) {
    for (std::int64_t i = 0; i < count; ++i)
        numbers[i] = reduction == Reduction::sum ? numbers[i] + others[i] : std::max(numbers[i], others[i]);
}

}  // namespace dp::trainer
