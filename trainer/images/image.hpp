// SPDX-License-Identifier: Apache-2.0
//
// Pictures as people have them: PNG and JPEG, decoded and brought to a model's channels and size. prepare/image_set.cpp calls it.
// Files are untrusted: what a header says is checked before memory is taken for it (daemon/SECURITY.md has the limits).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/failure.hpp"

namespace dp::trainer {

// Row by row, [height, width, channels]; 1 channel (grey) or 3 (red, green, blue).
struct Image {
    std::int64_t width = 0, height = 0, channels = 0;
    std::vector<std::uint8_t> pixels;
};

// Of an image that is decoded: a header that says more is refused.
inline constexpr std::int64_t kMostImagePixels = std::int64_t{1} << 26;
inline constexpr std::int64_t kLargestImageSide = 1 << 16;
// Of a file.
inline constexpr std::int64_t kLargestImageFile = std::int64_t{1} << 28;

// PNG or JPEG, whatever it is called. Transparency is dropped, as Pillow's convert("RGB") drops it; 16 bits become 8, palettes
// and CMYK red, green and blue. Neither EXIF's orientation nor colour profiles are looked at. An error is the reason alone.
Try<Image> decode_image(std::span<const std::uint8_t> file);
Try<Image> decode_png(std::span<const std::uint8_t> file);
Try<Image> decode_jpeg(std::span<const std::uint8_t> file);
// Whether an image of these sides is decoded at all.
Try<void> check_sides(std::int64_t width, std::int64_t height);

// Pure. Grey by the luma of ITU-R BT.601, 0.299 R + 0.587 G + 0.114 B, in 16-bit fixed point as Pillow's convert("L").
Image grey(const Image& image);
// Pure. Three channels, also of a grey image.
Image coloured(const Image& image);
// Pure. Bilinear, and where it shrinks by the mean of all pixels under the triangle (antialiased), in the fixed point of
// Pillow's resize(..., BILINEAR). Width and height change independently.
Image resized(const Image& image, std::int64_t width, std::int64_t height);
// Pure. Of one channel, by the nearest pixel: no value comes up that was not there.
Image resized_to_nearest(const Image& image, std::int64_t width, std::int64_t height);
// Pure: [channels, height, width].
std::vector<std::uint8_t> planes(const Image& image);

}  // namespace dp::trainer
