// SPDX-License-Identifier: Apache-2.0
//
// PNG and JPEG: what is decoded, what is refused before memory is taken, and how pictures are brought to a model's channels and size.
// tests/clients/test_data_from_outside.py compares with Pillow.
#include <gmock/gmock.h>
#include <zlib.h>

#include "pictures.hpp"
#include "scratch.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

Try<Image> decoded(std::string_view file) {
    return decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()});
}

TEST(DecodeImage, PngIsExact) {
    for (const std::int64_t channels : {1, 3}) {
        const Image image = painted(19, 7, channels);
        const auto found = decoded(png_of(image));
        ASSERT_TRUE(found) << found.error().message;
        EXPECT_EQ(std::tuple(found->width, found->height, found->channels), std::tuple(19, 7, channels));
        EXPECT_EQ(found->pixels, image.pixels);
    }
    // Transparency is dropped, not laid on a ground.
    const Image with_alpha{2, 1, 4, {10, 20, 30, 0, 40, 50, 60, 128}};
    EXPECT_EQ(decoded(png_of(with_alpha, PNG_FORMAT_RGBA))->pixels, (Bytes{10, 20, 30, 40, 50, 60}));
}

// A chunk of a PNG file, with its length and its checksum.
std::string chunk(const std::string& name, const std::string& data) {
    const auto number = [](std::size_t value) {
        std::string bytes;
        for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
        return bytes;
    };
    const std::string text = name + data;
    return number(data.size()) + text +
           number(::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

// As Pillow reads it: a gamma of the file's own would make other pixels of the same numbers, and other classes of a mask's.
TEST(DecodeImage, PngHasThePixelsThatAreStored) {
    const Image image = painted(19, 7, 1);
    const std::string file = png_of(image);
    constexpr std::size_t kHeader = 8 + 25;      // the signature, and the chunk that comes first
    const std::string gamma("\0\1\x86\xA0", 4);  // 100000: linear
    const auto found = decoded(file.substr(0, kHeader) + chunk("gAMA", gamma) + file.substr(kHeader));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->pixels, image.pixels);
}

TEST(DecodeImage, JpegIsNearlySo) {
    for (const std::int64_t channels : {1, 3}) {
        for (const bool progressive : {false, true}) {
            const Image image = painted(48, 24, channels);
            const auto found = decoded(jpeg_of(image, progressive));
            ASSERT_TRUE(found) << found.error().message;
            EXPECT_EQ(std::tuple(found->width, found->height, found->channels), std::tuple(48, 24, channels));
            if (channels == 1) {
                int furthest = 0;
                for (std::size_t i = 0; i < image.pixels.size(); ++i)
                    furthest = std::max(furthest, std::abs(image.pixels[i] - found->pixels[i]));
                EXPECT_LE(furthest, 3);
            }
        }
    }
    // Adobe's CMYK, of which libjpeg writes the marker: what is left of the light.
    Image inks{8, 8, 4, {}};
    for (int i = 0; i < 64; ++i) inks.pixels.insert(inks.pixels.end(), {255, 128, 0, 255});
    const auto found = decoded(jpeg_of(inks, false, JCS_CMYK));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->channels, 3);
    EXPECT_NEAR(found->pixels[0], 255, 3);
    EXPECT_NEAR(found->pixels[1], 128, 3);
    EXPECT_NEAR(found->pixels[2], 0, 3);
}

TEST(DecodeImage, WhatIsDamagedIsRefusedWithTheReason) {
    const std::string png = png_of(painted(40, 40, 3)), jpeg = jpeg_of(painted(64, 64, 3), true);
    std::string other_pixel = png;
    other_pixel[other_pixel.size() / 2] ^= 1;
    for (const auto& [file, why] : std::vector<std::pair<std::string, std::string>>{
             {"", "it is empty"},
             {"GIF89a", "it is neither PNG nor JPEG"},
             {png.substr(0, png.size() / 2), "it is damaged (libpng: "},
             {png.substr(0, 20), "it is damaged (libpng: "},
             {other_pixel, "it is damaged (libpng: "},
             {jpeg.substr(0, jpeg.size() / 2), "it is damaged (libjpeg: Premature end of JPEG file"},
             {jpeg.substr(0, 3), "it is damaged (libjpeg: "}}) {
        EXPECT_THAT(refusal_of(decoded(file)), HasSubstr(why));
        EXPECT_EQ(refusal_of(decoded(file)).find('\n'), std::string::npos);
    }
}

std::string big_endian(std::uint32_t number, int bytes) {
    std::string text;
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        text += static_cast<char>(number >> shift & 0xFF);
    return text;
}

// Of so many pixels as a header says there would be gigabytes.
TEST(DecodeImage, AHeaderThatSaysTooMuchIsRefusedBeforeMemoryIsTaken) {
    const auto png = [](std::uint32_t width, std::uint32_t height) {
        const std::string header =
            "IHDR" + big_endian(width, 4) + big_endian(height, 4) + std::string("\x08\x02\0\0\0", 5);
        const auto check =
            crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
        return "\x89PNG\r\n\x1a\n" + big_endian(13, 4) + header +
               big_endian(static_cast<std::uint32_t>(check), 4) + big_endian(0, 4) + "IDAT" +
               big_endian(0x35af061e, 4);
    };
    EXPECT_EQ(refusal_of(decoded(png(65536, 65536))),
              "its header says 65536 x 65536 pixels, and at most 67108864 in all are read");
    EXPECT_EQ(refusal_of(decoded(png(8193, 8192))),
              "its header says 8193 x 8192 pixels, and at most 67108864 in all are read");
    EXPECT_THAT(refusal_of(decoded(png(70000, 1))), HasSubstr("its header says 70000 x 1 pixels"));
    EXPECT_THAT(refusal_of(decoded(png(0x7fffffff, 0x7fffffff))), HasSubstr("it is damaged (libpng: "));
    std::string jpeg = jpeg_of(painted(16, 16, 1));
    const auto frame = jpeg.find("\xff\xc0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, big_endian(60000, 2) + big_endian(60000, 2));
    EXPECT_THAT(refusal_of(decoded(jpeg)), HasSubstr("its header says 60000 x 60000 pixels"));
}

// Each scan of a progressive file goes over the whole image.
TEST(DecodeImage, AJpegOfManyScansIsRefused) {
    const std::string jpeg = jpeg_of(painted(16, 16, 1), true);
    const auto scan = jpeg.find("\xff\xda");
    auto end = scan + 2;
    while (jpeg[end] != '\xff' || jpeg[end + 1] == '\0') ++end;
    std::string many = jpeg;
    for (int i = 0; i < 200; ++i) many.insert(end, jpeg.substr(scan, end - scan));
    EXPECT_TRUE(decoded(jpeg));
    EXPECT_THAT(refusal_of(decoded(many)), HasSubstr("more than 100 scans"));
}

TEST(Convert, GreyIsTheLumaOfBt601) {
    const Image image{4, 1, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}};
    EXPECT_EQ(grey(image).pixels, (Bytes{76, 150, 29, 255}));
    EXPECT_EQ(coloured(grey(image)).pixels, (Bytes{76, 76, 76, 150, 150, 150, 29, 29, 29, 255, 255, 255}));
    EXPECT_EQ(grey(grey(image)).pixels, grey(image).pixels);
}

TEST(Convert, ResizingKeepsWhatIsFlatAndAveragesWhatIsNot) {
    const Image flat{5, 3, 1, Bytes(15, 77)};
    EXPECT_EQ(resized(flat, 28, 28).pixels, Bytes(784, 77));
    EXPECT_EQ(resized(Image{1, 1, 1, {9}}, 3, 2).pixels, Bytes(6, 9));
    const Image image = painted(9, 9, 3);
    EXPECT_EQ(resized(image, 9, 9).pixels, image.pixels);
    // Triangles of two pixels' width: of 4 pixels, weights 3 3 1 (of 7) and 1 3 3.
    EXPECT_EQ(resized(Image{4, 1, 1, {0, 70, 140, 210}}, 2, 1).pixels, (Bytes{50, 160}));
    // Between two pixels, and beyond the outer ones' middles.
    EXPECT_EQ(resized(Image{2, 1, 1, {0, 100}}, 4, 1).pixels, (Bytes{0, 25, 75, 100}));
    EXPECT_EQ(resized(Image{1, 2, 1, {0, 100}}, 1, 4).pixels, (Bytes{0, 25, 75, 100}));
    EXPECT_EQ(resized_to_nearest(Image{2, 2, 1, {1, 0, 0, 1}}, 4, 4).pixels,
              (Bytes{1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1}));
    EXPECT_EQ(planes(Image{2, 1, 3, {1, 2, 3, 4, 5, 6}}), (Bytes{1, 4, 2, 5, 3, 6}));
}

}  // namespace
}  // namespace dp::trainer
