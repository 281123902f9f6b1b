// SPDX-License-Identifier: Apache-2.0
//
// How the ranks that have the same slice of a sum, one of each node, add it up over Gloo.
// node_communicator.cpp calls it, parallel/world.cpp connects it.
#ifndef TRAINER_PARALLEL_BETWEEN_NODES_HPP
#define TRAINER_PARALLEL_BETWEEN_NODES_HPP

#include <gloo/context.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/result.hpp"
#include "trainer/tensor.hpp"

namespace dp::trainer {

// In place, a tensor of f32. Every rank calls, in the same order; all have the same bits then.
using SliceSum = std::function<Result<void>(const Tensor& slice)>;

// Between the ranks of a mesh, which has no other use from now on. `index`: which slices they have, the same
// on all of them.
Result<SliceSum> sum_between_nodes(std::shared_ptr<::gloo::Context> mesh, std::int64_t index);

}  // namespace dp::trainer

#endif
