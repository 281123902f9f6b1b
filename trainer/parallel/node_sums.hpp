// SPDX-License-Identifier: Apache-2.0
//
// Adding up what the ranks of a node have. node_communicator.cpp calls.
#ifndef TRAINER_PARALLEL_NODE_SUMS_HPP
#define TRAINER_PARALLEL_NODE_SUMS_HPP

#include <span>

#include "trainer/base/node_place.hpp"

namespace dp::trainer {

// Adds to the slice of the first what the others have there, in their order.
void add_up(std::span<float* const> numbers, Slice slice);

}  // namespace dp::trainer

#endif
