// SPDX-License-Identifier: Apache-2.0
//
// The trainer's errors: one line for the user and an exit code. All of trainer/ that can fail returns Result.
#pragma once

#ifndef __CUDACC__  // nvcc does not understand it
#include <fmt/core.h>
#endif

#include <cerrno>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/errno_text.hpp"
#include "base/failure.hpp"

namespace dp::trainer {

// The numbers are exit codes, documented in --help: do not renumber.
enum class Fault : int {
    training = 1,    // the training itself: ranks that differ, a loss that is NaN or infinite
    usage = 2,       // what the user gave: options, data, a checkpoint to resume from
    prepare = 3,     // `trainer prepare` could not fetch or write: no npm, no network, or a full disk
    world = 4,       // libdp, Gloo or NCCL: ranks that are missing or lost
    device = 5,      // no such device, out of memory, a CUDA call that failed
    throughput = 6,  // slower or faster than the user allows
    stopped = 7,     // a signal asked for it, and the same command continues from the checkpoint
    checkpoint = 8,  // one could not be written
};

struct Error {
    Fault fault;
    std::string message;  // one line: what was tried, what is wrong, what to do; "": another rank says it
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(Fault fault, std::string message) {
    return tl::unexpected(Error{fault, std::move(message)});
}
#ifndef __CUDACC__
template <typename First, typename... Rest>
tl::unexpected<Error> fail(Fault fault, fmt::format_string<First, Rest...> message, First&& first,
                           Rest&&... rest) {
    return fail(fault, fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
}
#endif

// From errno: "WHAT: why", and the remedy if there is one.
inline tl::unexpected<Error> fail_with_errno(Fault fault, const std::string& what) {
    return fail(fault, what + ": " + errno_text(errno));
}

}  // namespace dp::trainer
