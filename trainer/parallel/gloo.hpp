// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs: Gloo's collectives over TCP. parallel/world.cpp makes one over
// the mesh of libdp-gloo, the tests over their own.
#pragma once

#include <gloo/context.h>

#include <exception>
#include <memory>

#include "trainer/base/communicator.hpp"

namespace dp::trainer {

// For tensors in host memory. From then on, writing to the socket of a dead rank is an error and no signal.
// Communicators with different numbers may use one mesh at the same time.
std::unique_ptr<Communicator> make_gloo(std::shared_ptr<::gloo::Context> mesh, std::uint32_t number = 0);

// The error for an exception of Gloo's.
tl::unexpected<Error> gloo_error(const char* what, const std::exception& error);

// Makes calls of Gloo, which may throw. `what` they do is for the error.
template <typename Calls>
Result<void> with_gloo(const char* what, const Calls& calls) {
    try {
        calls();
        return {};
    } catch (const std::exception& error) {
        return gloo_error(what, error);
    }
}

}  // namespace dp::trainer
