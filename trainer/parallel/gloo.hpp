// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs. parallel/world.cpp opens it in libdp's world; the tests make one
// over Gloo alone.
#pragma once

#include <exception>
#include <memory>

#include "dp/gloo.hpp"
#include "trainer/base/communicator.hpp"

namespace dp::trainer {

// Over TCP between the ranks of a group, for tensors in host memory; rank and size are those in the group.
// The context must outlive it.
Result<std::unique_ptr<Communicator>> open_gloo(Context& context, const Group& group = {"trainer", {}});

// Over an existing mesh.
std::unique_ptr<Communicator> make_gloo(std::shared_ptr<::gloo::Context> mesh);

// For users of a mesh: Gloo may write to the socket of a dead rank. That must be an error to report, not a
// signal that ends this process.
void survive_lost_ranks();

// The error for an exception of Gloo's.
tl::unexpected<Error> gloo_broke_off(const char* what, const std::exception& error);

}  // namespace dp::trainer
