// SPDX-License-Identifier: Apache-2.0
//
// Adds up vectors of the ranks of a node. Called by node_communicator.cpp.
#pragma once

#include <span>

#include "trainer/base/partition.hpp"

namespace dp::trainer {

// Adds the others' slices to the first one's, in order.
void add_up(std::span<float* const> numbers, const Shard& slice);

}  // namespace dp::trainer
