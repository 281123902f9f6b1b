// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trainer/images/image.hpp"

namespace dp::trainer {
namespace {

constexpr std::array<std::uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::array<std::uint8_t, 3> kJpegSignature{0xff, 0xd8, 0xff};

bool begins_with(std::span<const std::uint8_t> file, std::span<const std::uint8_t> signature) {
    return file.size() >= signature.size() && std::equal(signature.begin(), signature.end(), file.begin());
}

}  // namespace

Try<void> check_sides(std::int64_t width, std::int64_t height) {
    if (width < 1 || height < 1) return dp::fail("it has no pixels");
    if (width > kLargestImageSide || height > kLargestImageSide || width * height > kMostImagePixels)
        return dp::fail(fmt::format("its header says {} x {} pixels, and at most {} in all are read", width,
                                    height, kMostImagePixels));
    return {};
}

Try<Image> decode_image(std::span<const std::uint8_t> file) {
    if (file.empty()) return dp::fail("it is empty");
    if (begins_with(file, kPngSignature)) return decode_png(file);
    if (begins_with(file, kJpegSignature)) return decode_jpeg(file);
    return dp::fail("it is neither PNG nor JPEG");
}

}  // namespace dp::trainer
