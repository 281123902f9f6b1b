// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 on the host: the upper half of a float32, with its range and 8 bits of its precision. Tensors of
// Type::bf16 hold it; the CPU device and the tests convert. CUDA code reads the same bits as __nv_bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace dp::trainer {

struct Bfloat16 {
    std::uint16_t bits;

    bool operator==(const Bfloat16&) const = default;  // of the bits
};
static_assert(sizeof(Bfloat16) == 2);

// The conversion is exact.
constexpr float to_float(Bfloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; too large becomes infinite, NaN stays NaN. No branches: loops vectorise.
constexpr Bfloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    // Rounding could carry a NaN into infinity, or cut off the bits that make it a NaN.
    const std::uint32_t quiet = (bits >> 16) | 0x40u;
    return {static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded)};
}

}  // namespace dp::trainer
