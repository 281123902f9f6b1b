// SPDX-License-Identifier: Apache-2.0
//
// How ranks that are each other's like, one of each node, add up what their nodes have, over Gloo.
// node_communicator.cpp calls it, parallel/world.cpp makes the meshes.
#ifndef TRAINER_PARALLEL_BETWEEN_NODES_HPP
#define TRAINER_PARALLEL_BETWEEN_NODES_HPP

#include <gloo/context.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

// In place. Every rank of a mesh calls, in the same order; all have the same bits then. The mesh has no other
// use.
using SumBetween = std::function<Result<void>(const Tensor& numbers)>;

// Of slices of any length, f32. `index`: which slices they have, the same on all of them.
Result<SumBetween> sum_between_nodes(std::shared_ptr<::gloo::Context> mesh, std::int64_t index);

// Of few numbers, f64: what a socket takes without being read, at most.
Result<SumBetween> sum_few_between_nodes(std::shared_ptr<::gloo::Context> mesh);

}  // namespace dp::trainer

#endif
