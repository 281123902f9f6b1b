// SPDX-License-Identifier: Apache-2.0
//
// e^x without branches or calls, so that the compiler vectorises it; the C library's is called number by
// number. Off by at most 2 units in the last place (device_test.cpp).
#pragma once

#include <bit>
#include <cstdint>

namespace dp::trainer::cpu {

// x is clamped to -87.3 .. 88.3, so the smallest result is 1.2e-38; NaN stays NaN.
inline float exponential(float x) {
    x = x < -87.3f ? -87.3f : x;  // in this form NaN passes
    x = x > 88.3f ? 88.3f : x;
    // e^x = 2^n e^r, n whole and |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to a whole number, which then is
    // in the lowest bits of the sum: converting NaN to an integer would be undefined.
    constexpr float kRounder = 12582912.0f;
    const float rounded = x * 1.44269504f + kRounder;
    const std::int32_t whole = std::bit_cast<std::int32_t>(rounded) - std::bit_cast<std::int32_t>(kRounder);
    const float n = rounded - kRounder;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
    // The polynomial of Cephes (Moshier 1989) for that range.
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float power = std::bit_cast<float>((whole + 127) << 23);
    return (p * r * r + r + 1.0f) * power;
}

}  // namespace dp::trainer::cpu
