// SPDX-License-Identifier: Apache-2.0
//
// Pictures for tests, encoded by libpng and libjpeg.
#pragma once

#include <gtest/gtest.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
// After stdio.h.
#include <jpeglib.h>

#include <string>

#include "trainer/images/image.hpp"

namespace dp::trainer {

// Colours that differ from pixel to pixel, smoothly.
inline Image painted(std::int64_t width, std::int64_t height, std::int64_t channels, int seed = 0) {
    Image image{width, height, channels, {}};
    for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x)
            for (std::int64_t c = 0; c < channels; ++c)
                image.pixels.push_back(static_cast<std::uint8_t>((3 * x + 5 * y + 60 * c + 31 * seed) % 256));
    return image;
}

inline std::string png_of(const Image& image, png_uint_32 format = 0) {
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    png.width = static_cast<png_uint_32>(image.width);
    png.height = static_cast<png_uint_32>(image.height);
    png.format = format != 0 ? format : image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    png_alloc_size_t size = 0;
    EXPECT_NE(png_image_write_to_memory(&png, nullptr, &size, 0, image.pixels.data(), 0, nullptr), 0);
    std::string file(size, '\0');
    EXPECT_NE(png_image_write_to_memory(&png, file.data(), &size, 0, image.pixels.data(), 0, nullptr), 0);
    file.resize(size);
    return file;
}

inline std::string jpeg_of(const Image& image, bool progressive = false, J_COLOR_SPACE space = JCS_UNKNOWN) {
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg.image_width = static_cast<JDIMENSION>(image.width);
    jpeg.image_height = static_cast<JDIMENSION>(image.height);
    jpeg.input_components = static_cast<int>(image.channels);
    jpeg.in_color_space = space != JCS_UNKNOWN ? space : image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    if (progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        auto* row = const_cast<unsigned char*>(image.pixels.data()) +
                    static_cast<std::size_t>(jpeg.next_scanline) *
                        static_cast<std::size_t>(image.width * image.channels);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    std::string file(reinterpret_cast<const char*>(bytes), size);
    jpeg_destroy_compress(&jpeg);
    free(bytes);
    return file;
}

}  // namespace dp::trainer
