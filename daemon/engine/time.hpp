// SPDX-License-Identifier: Apache-2.0
//
// The engine's time: milliseconds since some start. The loop passes the steady clock, tests a number.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "base/text.hpp"

namespace dp {

using Time = std::chrono::milliseconds;

// A timeout from the wire: made non-negative, and small enough for any sum with a clock.
inline Time clamped(int64_t timeout_ms) {
    return Time(std::clamp<int64_t>(timeout_ms, 0, int64_t{1} << 40));
}

// The earlier of two deadlines, where nullopt is "none".
inline std::optional<Time> earlier(std::optional<Time> a, std::optional<Time> b) {
    if (!a) return b;
    if (!b) return a;
    return std::min(*a, *b);
}

// The earliest of them.
inline std::optional<Time> earliest(std::initializer_list<std::optional<Time>> deadlines) {
    std::optional<Time> first;
    for (const auto& deadline : deadlines) first = earlier(first, deadline);
    return first;
}

}  // namespace dp
