// SPDX-License-Identifier: Apache-2.0
//
// Data sets for the tests of the training loop.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/base/random.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

inline constexpr std::size_t kPixels = 784;  // what ffn takes

// Noisy images of ten patterns: what ffn can learn in a few steps, without any file.
inline Split patterns(std::int64_t count, std::uint64_t seed) {
    Random prototypes(1, 0), noise(seed, 1);
    std::vector<std::uint8_t> pattern(10 * kPixels);
    for (auto& pixel : pattern) pixel = static_cast<std::uint8_t>(prototypes.below(200));
    Split samples;
    samples.count = count;
    samples.features = {Type::u8, kPixels, {}};
    samples.normalise = {1 / 90.0f, -1};
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < count; ++i) {
        labels.push_back(static_cast<std::int32_t>(noise.below(10)));
        for (std::size_t p = 0; p < kPixels; ++p) {
            const std::size_t at = static_cast<std::size_t>(labels.back()) * kPixels + p;
            samples.features.bytes.push_back(static_cast<std::uint8_t>(pattern[at] + noise.below(56)));
        }
    }
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(labels.data());
    samples.targets = {Type::i32, 1, {bytes, bytes + labels.size() * sizeof(std::int32_t)}};
    return samples;
}

inline Dataset pattern_set() {
    return {patterns(1500, 2), patterns(203, 3), "patterns"};
}

// Images whose bright pixels are what is to be found.
inline Dataset bright_pixels(std::int64_t count, std::int64_t side) {
    const auto pixels = static_cast<std::size_t>(side * side);
    Random random(5, 0);
    std::vector<float> images, masks;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) * pixels; ++i) {
        for (int channel = 0; channel < 3; ++channel) images.push_back(random.uniform(-1, 1));
        masks.push_back(images.back() > 0.3f ? 1.0f : 0.0f);
    }
    const auto matrix = [](const std::vector<float>& values, std::int64_t columns) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
        return Matrix{Type::f32, columns, {bytes, bytes + values.size() * sizeof(float)}};
    };
    const Split samples{count, matrix(images, 3 * side * side), {}, matrix(masks, side * side)};
    return {samples, samples, "bright pixels"};
}

// Sequences of tokens below `vocabulary`.
inline Dataset random_text(std::int64_t sequences, std::int64_t length, std::uint32_t vocabulary) {
    Random random(6, 0);
    Split samples;
    samples.count = sequences;
    samples.features = {Type::u16, length, {}};
    samples.targets = {Type::u16, length, {}};
    samples.next_is_target = true;
    for (std::int64_t i = 0; i <= sequences * length; ++i) {
        const std::uint32_t token = random.below(vocabulary);
        samples.features.bytes.push_back(static_cast<std::uint8_t>(token & 0xFF));
        samples.features.bytes.push_back(static_cast<std::uint8_t>(token >> 8));
    }
    return {samples, samples, "random text"};
}

}  // namespace dp::trainer
