// SPDX-License-Identifier: Apache-2.0
//
// By libpng's simplified interface (libpng-manual.txt, VI): errors come back as values, and nothing jumps.
#include <png.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "trainer/images/image.hpp"

namespace dp::trainer {

namespace {

// The chunks that pixels are made of. Others may be unpacked without limit, or change the pixels (gAMA).
std::vector<std::uint8_t> chunks_of_pixels(std::span<const std::uint8_t> file) {
    constexpr std::size_t kSignature = 8, kLength = 4, kName = 4, kSum = 4;
    std::vector<std::uint8_t> kept;
    kept.reserve(file.size());
    const auto keep = [&](std::size_t from, std::size_t to) {
        kept.insert(kept.end(), file.begin() + static_cast<std::ptrdiff_t>(from),
                    file.begin() + static_cast<std::ptrdiff_t>(to));
    };
    keep(0, std::min(file.size(), kSignature));
    for (std::size_t at = kSignature; at + kLength + kName + kSum <= file.size();) {
        std::size_t length = 0;
        for (std::size_t i = 0; i < kLength; ++i) length = length << 8 | file[at + i];
        const std::size_t end = std::min(file.size(), at + kLength + kName + length + kSum);
        const std::string name(reinterpret_cast<const char*>(&file[at + kLength]), kName);
        if (name == "IHDR" || name == "PLTE" || name == "tRNS" || name == "IDAT" || name == "IEND")
            keep(at, end);
        at = end;
    }
    return kept;
}

}  // namespace

Try<Image> decode_png(std::span<const std::uint8_t> whole_file) {
    const std::vector<std::uint8_t> file = chunks_of_pixels(whole_file);
    struct Reader {
        png_image image{};
        ~Reader() { png_image_free(&image); }
    } reader;
    png_image& png = reader.image;
    png.version = PNG_IMAGE_VERSION;
    const auto refuse = [&] {
        return dp::fail("it is damaged (libpng: " + printable(png.message, 80) + ")");
    };
    if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) return refuse();
    if (const auto sides = check_sides(png.width, png.height); !sides) return tl::unexpected(sides.error());
    // 16 bits without a gamma of their own are taken as 8 bits are.
    png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    const bool is_coloured = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
    // With transparency: without it libpng would lay the pixels on a ground.
    png.format = is_coloured ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
    std::vector<std::uint8_t> with_alpha(PNG_IMAGE_SIZE(png));
    if (png_image_finish_read(&png, nullptr, with_alpha.data(), 0, nullptr) == 0) return refuse();
    Image image{png.width, png.height, is_coloured ? 3 : 1, {}};
    const std::size_t channels = is_coloured ? 3 : 1, stored = channels + 1;
    image.pixels.resize(with_alpha.size() / stored * channels);
    for (std::size_t from = 0, to = 0; from < with_alpha.size(); from += stored, to += channels)
        for (std::size_t c = 0; c < channels; ++c) image.pixels[to + c] = with_alpha[from + c];
    return image;
}

}  // namespace dp::trainer
