// SPDX-License-Identifier: Apache-2.0
//
// IEEE 754's 16 bits on the host: 5 of exponent, 10 of fraction. Files of weights have them; nothing here computes in them.
#pragma once

#include <bit>
#include <cstdint>

namespace dp::trainer {

struct Float16 {
    std::uint16_t bits;
};
static_assert(sizeof(Float16) == 2);

// The conversion is exact.
constexpr float to_float(Float16 value) {
    const std::uint32_t sign = (value.bits & 0x8000u) << 16, exponent = (value.bits >> 10) & 0x1Fu,
                        fraction = value.bits & 0x3FFu;
    if (exponent == 0) {  // subnormal: the fraction counts in units of 2^-24
        const float size = static_cast<float>(fraction) * 0x1p-24f;
        return sign == 0 ? size : -size;
    }
    const std::uint32_t wide = exponent == 0x1Fu ? 0xFFu : exponent + (127 - 15);
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace dp::trainer
