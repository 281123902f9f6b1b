// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "trainer/images/image.hpp"

namespace dp::trainer {
namespace {

constexpr int kFraction = 22;  // bits of a weight

// The pixels that one of the result is made of, and their weights.
struct Taps {
    std::int64_t first = 0;
    std::vector<std::int32_t> weights;
};

// The triangle of Pillow's BILINEAR (src/libImaging/Resample.c): half as wide as two pixels, of the larger of both images.
std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to), support = std::max(scale, 1.0);
    std::vector<Taps> all;
    for (std::int64_t i = 0; i < to; ++i) {
        const double centre = (static_cast<double>(i) + 0.5) * scale;
        const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
        const auto end = std::min(static_cast<std::int64_t>(centre + support + 0.5), from);
        std::vector<double> parts;
        double sum = 0;
        for (std::int64_t at = first; at < end; ++at) {
            const double away = std::abs(static_cast<double>(at) - centre + 0.5) * (1 / support);
            parts.push_back(std::max(1 - away, 0.0));
            sum += parts.back();
        }
        Taps taps{first, {}};
        for (const double part : parts)
            taps.weights.push_back(static_cast<std::int32_t>(0.5 + part / sum * (1 << kFraction)));
        all.push_back(std::move(taps));
    }
    return all;
}

std::uint8_t clipped(std::int64_t sum) {
    return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> kFraction, 0, 255));
}

// Of `lines` lines of `from` pixels each, `step` apart from pixel to pixel and `line` from line to line.
struct Lines {
    std::int64_t lines, line, step;
};
void resize_lines(const std::uint8_t* from, Lines there, std::uint8_t* to, Lines here,
                  const std::vector<Taps>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Taps& taps = all[i];
        for (std::int64_t l = 0; l < there.lines; ++l) {
            std::int64_t sum = 1 << (kFraction - 1);
            const std::uint8_t* at = from + l * there.line + taps.first * there.step;
            for (const std::int32_t weight : taps.weights) {
                sum += std::int64_t{*at} * weight;
                at += there.step;
            }
            to[l * here.line + static_cast<std::int64_t>(i) * here.step] = clipped(sum);
        }
    }
}

std::size_t bytes_for(std::int64_t width, std::int64_t height, std::int64_t channels) {
    return static_cast<std::size_t>(width * height * channels);
}

}  // namespace

Image grey(const Image& image) {
    if (image.channels == 1) return image;
    Image made{image.width, image.height, 1,
               std::vector<std::uint8_t>(bytes_for(image.width, image.height, 1))};
    for (std::size_t i = 0; i < made.pixels.size(); ++i) {
        const std::uint8_t* pixel = image.pixels.data() + 3 * i;
        made.pixels[i] =
            static_cast<std::uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
    }
    return made;
}

Image coloured(const Image& image) {
    if (image.channels == 3) return image;
    Image made{image.width, image.height, 3, std::vector<std::uint8_t>(3 * image.pixels.size())};
    for (std::size_t i = 0; i < made.pixels.size(); ++i) made.pixels[i] = image.pixels[i / 3];
    return made;
}

Image resized(const Image& image, std::int64_t width, std::int64_t height) {
    Image made = image;
    const std::int64_t channels = image.channels;
    if (width != image.width) {
        const auto taps = taps_of(image.width, width);
        made = {width, image.height, channels,
                std::vector<std::uint8_t>(bytes_for(width, image.height, channels))};
        for (std::int64_t c = 0; c < channels; ++c)
            resize_lines(image.pixels.data() + c, {image.height, image.width * channels, channels},
                         made.pixels.data() + c, {image.height, width * channels, channels}, taps);
    }
    if (height == made.height) return made;
    const auto taps = taps_of(made.height, height);
    const std::int64_t row = width * channels;
    Image both{width, height, channels, std::vector<std::uint8_t>(bytes_for(width, height, channels))};
    resize_lines(made.pixels.data(), {row, 1, row}, both.pixels.data(), {row, 1, row}, taps);
    return both;
}

Image resized_to_nearest(const Image& image, std::int64_t width, std::int64_t height) {
    if (width == image.width && height == image.height) return image;
    Image made{width, height, 1, std::vector<std::uint8_t>(bytes_for(width, height, 1))};
    const auto nearest = [](std::int64_t at, std::int64_t from, std::int64_t to) {
        return (2 * at + 1) * from / (2 * to);  // under the middle of the new pixel
    };
    for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x)
            made.pixels[static_cast<std::size_t>(y * width + x)] = image.pixels[static_cast<std::size_t>(
                nearest(y, image.height, height) * image.width + nearest(x, image.width, width))];
    return made;
}

std::vector<std::uint8_t> planes(const Image& image) {
    const std::int64_t pixels = image.width * image.height;
    std::vector<std::uint8_t> made(image.pixels.size());
    for (std::int64_t c = 0; c < image.channels; ++c)
        for (std::int64_t i = 0; i < pixels; ++i)
            made[static_cast<std::size_t>(c * pixels + i)] =
                image.pixels[static_cast<std::size_t>(i * image.channels + c)];
    return made;
}

}  // namespace dp::trainer
