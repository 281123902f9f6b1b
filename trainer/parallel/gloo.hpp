// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs. parallel/world.cpp opens it in a world of libdp's; the tests make one over
// Gloo alone.
#ifndef TRAINER_PARALLEL_GLOO_HPP
#define TRAINER_PARALLEL_GLOO_HPP

#include <memory>

#include "dp/gloo.hpp"
#include "trainer/parallel/communicator.hpp"

namespace dp::trainer {

// Over TCP between all ranks of the world, for tensors in host memory. The context must outlive it.
Result<std::unique_ptr<Communicator>> open_gloo(Context& context);

// Over a mesh that is connected already.
std::unique_ptr<Communicator> make_gloo(std::shared_ptr<::gloo::Context> mesh);

}  // namespace dp::trainer

#endif
