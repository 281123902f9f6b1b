// SPDX-License-Identifier: Apache-2.0
//
// Time as the engine sees it: milliseconds since some start. The loop passes the steady clock, tests a
// number.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace dp {

using Time = std::chrono::milliseconds;

// The earlier of two deadlines, where nullopt is "none".
inline std::optional<Time> earlier(std::optional<Time> a, std::optional<Time> b) {
    if (!a) return b;
    if (!b) return a;
    return std::min(*a, *b);
}

}  // namespace dp
