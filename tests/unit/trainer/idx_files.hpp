// SPDX-License-Identifier: Apache-2.0
//
// Small data sets in the form of Fashion-MNIST, for the tests of what reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scratch.hpp"

namespace dp::trainer {

inline std::string idx_bytes(const std::vector<std::uint32_t>& dimensions, const std::string& elements) {
    std::string bytes{0, 0, 8, static_cast<char>(dimensions.size())};
    for (auto size : dimensions)
        for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift);
    return bytes + elements;
}

// Sprites of these labels, and of the light that goes with each, all over.
inline void write_sprites(const Scratch& scratch, const std::string& labels, const std::string& lights) {
    const auto count = static_cast<std::uint32_t>(labels.size());
    std::string pixels;
    for (const char light : lights) pixels += std::string(784, light);
    for (const char* part : {"train", "t10k"}) {
        scratch.write(std::string(part) + "-images-idx3-ubyte", idx_bytes({count, 28, 28}, pixels));
        scratch.write(std::string(part) + "-labels-idx1-ubyte", idx_bytes({count}, labels));
    }
}

}  // namespace dp::trainer
