// SPDX-License-Identifier: Apache-2.0
//
// Pictures that people bring (--data-dir): PNG and JPEG. Whatever is in them, they are refused in one line, or have the pixels that they
// say, which are brought to any size.
#include "trainer/images/image.hpp"

#include "target.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    using namespace dp::trainer;
    const auto image = decode_image({data, size});
    if (!image) {
        fuzz::must(!image.error().message.empty(), "a refusal says why");
        fuzz::must(image.error().message.find('\n') == std::string::npos, "a refusal is one line");
        return 0;
    }
    fuzz::must(image->channels == 1 || image->channels == 3, "grey or colours");
    fuzz::must(image->width > 0 && image->height > 0 && image->width * image->height <= kMostImagePixels,
               "no more than is read");
    const auto numbers = [](const Image& one) {
        return static_cast<size_t>(one.width * one.height * one.channels);
    };
    fuzz::must(image->pixels.size() == numbers(*image), "all pixels are there");
    if (image->width * image->height > 1 << 20) return 0;  // only takes time
    const Image small = resized(grey(*image), 28, 28);
    fuzz::must(small.pixels.size() == 784 && planes(small) == small.pixels, "it is brought to a size");
    fuzz::must(coloured(*image).pixels.size() == numbers(*image) / static_cast<size_t>(image->channels) * 3,
               "and to colours");
    return 0;
}
