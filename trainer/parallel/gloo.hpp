// SPDX-License-Identifier: Apache-2.0
//
// The communicator between CPUs: Gloo's collectives over TCP. parallel/world.cpp makes one over
// the mesh of libdp-gloo, the tests over their own.
#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "trainer/base/communicator.hpp"
#include "trainer/base/partition.hpp"

namespace dp::trainer {

// For tensors in host memory. From then on, writing to the socket of a dead rank is an error and no signal.
// Communicators with different numbers may use one mesh at the same time.
std::unique_ptr<Communicator> make_gloo(std::shared_ptr<::gloo::Context> mesh, std::uint32_t number = 0);

// Of a mesh whose ranks add up one after another: the elements of `total`, f32, to which it is this rank's turn to add.
using AddsPart = std::function<void(const Shard& part)>;
// Passes `total` from the first rank of the mesh, which may have something in it already, to the last, piece by piece; each
// adds to it. Then all have the last one's. `tag` separates it from concurrent ones. May throw, as Gloo does.
void add_in_turn(const std::shared_ptr<::gloo::Context>& mesh, std::uint32_t tag, const Tensor& total,
                 const AddsPart& add);

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
