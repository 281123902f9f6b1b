// SPDX-License-Identifier: Apache-2.0
//
// The all-reduce between nodes, over Gloo, among ranks with the same local rank. Called by
// node_communicator.cpp; parallel/world.cpp makes the meshes.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"

namespace dp::trainer {

// In place. Every rank of a mesh, which nothing else uses, calls in the same order. All get the same bits.
using InterNodeAllReduce = std::function<Result<void>(const Tensor& numbers)>;

// For f32 slices of any length. `index`: which slices they have, the same on all of them.
Result<InterNodeAllReduce> inter_node_all_reduce(std::shared_ptr<::gloo::Context> mesh, std::int64_t index);

// For few f64 numbers: at most what a socket buffers without being read.
Result<InterNodeAllReduce> small_inter_node_all_reduce(std::shared_ptr<::gloo::Context> mesh);

}  // namespace dp::trainer
