// SPDX-License-Identifier: Apache-2.0
//
// The all-reduce between nodes, over Gloo, among ranks with the same local rank. Called by
// node_communicator.cpp; parallel/world.cpp makes the meshes.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/base/tensor.hpp"
#include "trainer/parallel/gloo.hpp"

namespace dp::trainer {

// In place. Every rank of the mesh calls each of these in the same order; all get the same bits.
struct InterNode {
    // f32 slices of any length, from one thread, while another may be in all_reduce().
    std::function<Result<void>(const Tensor& slice)> sum;
    // Like add_in_turn() of these ranks (gloo.hpp), from the same thread.
    std::function<Result<void>(const Tensor& slice, const AddsPart& add)> add_in_turn;
    std::function<Result<void>(const Tensor& slice, std::int64_t root)> broadcast;
    // Of f32, f64 or i64.
    std::function<Result<void>(const Tensor& numbers, Reduction reduction)> all_reduce;
};

// Connects the ranks of the same local rank, `index`, on all nodes. `connect` makes a new mesh of them for each name.
Result<InterNode> connect_nodes(
    const std::function<Result<std::shared_ptr<::gloo::Context>>(const std::string& name)>& connect,
    std::int64_t nodes, std::int64_t index);

}  // namespace dp::trainer
