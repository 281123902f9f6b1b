// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are equal on every machine and for every world size: a counter through splitmix64's
// mixer (Steele, Lea, Flood 2014). The standard library's distributions differ between implementations.
#pragma once

#include <cstdint>

namespace dp::trainer {

class Random {
 public:
    // Streams of one seed are independent of each other.
    Random(std::uint64_t seed, std::uint64_t stream)
        : state_(mix(seed + kGolden) ^ mix(stream * kGolden + 1)) {}

    std::uint64_t bits() { return mix(state_ += kGolden); }
    // As if bits() had been called so often.
    void skip(std::uint64_t draws) { state_ += draws * kGolden; }

    // Uniform in [low, high), in steps of 2^-24 of the span.
    float uniform(float low, float high) {
        return low + (high - low) * (static_cast<float>(bits() >> 40) * 0x1p-24f);
    }

    // Approximately normal with mean 0 and deviation 1: the sum of twelve uniform numbers (Irwin and Hall).
    // It uses no function that differs between C libraries, so it is equal on every machine. Never beyond 6.
    float normal() {
        std::int64_t sum = 0;
        for (int word = 0; word < 3; ++word) {
            const std::uint64_t four = bits();
            for (int part = 0; part < 4; ++part)
                sum += static_cast<std::int64_t>((four >> (16 * part)) & 0xFFFF);
        }
        return static_cast<float>(sum - 6 * 0xFFFF) * 0x1p-16f;
    }

    // Uniform in 0 .. bound-1, without bias (Lemire 2019); bound > 0 and below 2^32.
    std::uint32_t below(std::uint32_t bound) {
        std::uint64_t product = (bits() >> 32) * bound;
        if (static_cast<std::uint32_t>(product) < bound) {
            const std::uint32_t threshold = (0u - bound) % bound;
            while (static_cast<std::uint32_t>(product) < threshold) product = (bits() >> 32) * bound;
        }
        return static_cast<std::uint32_t>(product >> 32);
    }

 private:
    static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
    std::uint64_t state_;

    static std::uint64_t mix(std::uint64_t value) {
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
        return value ^ (value >> 31);
    }
};

}  // namespace dp::trainer
