// SPDX-License-Identifier: Apache-2.0
//
// Which members of a group bring a value to a collective with several roots: evenly spread over the group,
// always including the first member, so that in a world laid out node by node they are on different nodes.
#pragma once

#include <cstdint>
#include <optional>

namespace dp {

// The member that is root `index` of `roots`, as a place in the group (0 .. size-1); 1 <= roots <= size.
inline uint64_t place_of_root(uint32_t index, uint32_t roots, uint64_t size) {
    return index * size / roots;
}

// The index of the root at this place, if it is one.
inline std::optional<uint32_t> root_at(uint64_t place, uint32_t roots, uint64_t size) {
    const uint64_t index = (place * roots + size - 1) / size;
    if (index >= roots || place_of_root(static_cast<uint32_t>(index), roots, size) != place)
        return std::nullopt;
    return static_cast<uint32_t>(index);
}

}  // namespace dp
