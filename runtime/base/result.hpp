// SPDX-License-Identifier: Apache-2.0
//
// Results as values, for the plugin, the daemon, dpctl and libdp. A failure is one line for the user: what
// was tried, where, and what to do.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace dp {

struct Failure {
    std::string message;
};

template <typename T>
using Try = tl::expected<T, Failure>;

inline tl::unexpected<Failure> fail(std::string message) {
    return tl::make_unexpected(Failure{std::move(message)});
}

}  // namespace dp
