// SPDX-License-Identifier: Apache-2.0
//
// Adding up what the ranks of a node have. node_communicator.cpp calls.
#ifndef TRAINER_PARALLEL_NODE_SUMS_HPP
#define TRAINER_PARALLEL_NODE_SUMS_HPP

#include <span>

#include "trainer/parallel/node_place.hpp"

namespace dp::trainer {

// The sum of the slices of all of `from`, added in their order, written to each of `to`; one may be both.
// With one in `from` it is a copy.
void add_up(std::span<float* const> from, Slice slice, std::span<float* const> to);

}  // namespace dp::trainer

#endif
