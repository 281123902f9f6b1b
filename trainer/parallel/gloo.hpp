// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs. parallel/world.cpp opens it in a world of libdp's; the tests make one over
// Gloo alone.
#ifndef TRAINER_PARALLEL_GLOO_HPP
#define TRAINER_PARALLEL_GLOO_HPP

#include <exception>
#include <memory>

#include "dp/gloo.hpp"
#include "trainer/base/communicator.hpp"

namespace dp::trainer {

// Over TCP between the ranks of a group, for tensors in host memory; rank and size are those in the group.
// The context must outlive it.
Result<std::unique_ptr<Communicator>> open_gloo(Context& context, const Group& group = {"trainer", {}});

// Over a mesh that is connected already.
std::unique_ptr<Communicator> make_gloo(std::shared_ptr<::gloo::Context> mesh);

// For whoever uses a mesh: Gloo writes to sockets whose rank may have died, which then is an error to report
// and no signal that ends this process too.
void survive_lost_ranks();

// What to tell when Gloo throws.
tl::unexpected<Error> gloo_broke_off(const char* what, const std::exception& error);

}  // namespace dp::trainer

#endif
