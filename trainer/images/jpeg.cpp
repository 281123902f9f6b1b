// SPDX-License-Identifier: Apache-2.0
//
// libjpeg's errors jump (libjpeg.txt, "Error handling"): what they jump over has nothing to destroy.
#include <csetjmp>
#include <cstddef>
#include <cstdio>  // jpeglib.h needs it
// jpeglib.h comes after them.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/text.hpp"
#include "trainer/images/image.hpp"

namespace dp::trainer {
namespace {

// A progressive file may have any number of scans, each of which goes over the whole image.
constexpr int kMostScans = 100;

struct JpegErrors {
    jpeg_error_mgr base{};
    std::jmp_buf leave{};
    std::array<char, JMSG_LENGTH_MAX> why{};
};

[[noreturn]] void leave_with_message(j_common_ptr jpeg) {
    auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
    errors->base.format_message(jpeg, errors->why.data());
    std::longjmp(errors->leave, 1);
}

// Of warnings, those that say that pixels are missing: libjpeg would make them grey.
void look_at_message(j_common_ptr jpeg, int level) {
    const int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE))
        leave_with_message(jpeg);
}

void count_scans(j_common_ptr jpeg) {
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMostScans) return;
    auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
    std::snprintf(errors->why.data(), errors->why.size(), "more than %d scans", kMostScans);
    std::longjmp(errors->leave, 1);
}

// As Pillow's convert("RGB"): light that all inks leave. Adobe writes what each of them leaves, not the ink.
void make_rgb(std::span<const std::uint8_t> cmyk, bool is_inverted, std::span<std::uint8_t> rgb) {
    const auto ink = [&](std::uint8_t stored) { return is_inverted ? 255 - stored : stored; };
    for (std::size_t i = 0; i < cmyk.size() / 4; ++i) {
        const int light = 255 - ink(cmyk[4 * i + 3]);
        for (std::size_t c = 0; c < 3; ++c) {
            const int taken = ink(cmyk[4 * i + c]) * light + 128;  // of 255, rounded without a division
            rgb[3 * i + c] = static_cast<std::uint8_t>(light - ((taken + (taken >> 8)) >> 8));
        }
    }
}

struct JpegFile {
    jpeg_decompress_struct jpeg{};
    JpegErrors errors;
    jpeg_progress_mgr progress{};
    ~JpegFile() { jpeg_destroy_decompress(&jpeg); }
};

// False where libjpeg refuses; errors.why says why. Nothing in these three is destroyed when it jumps.
bool read_jpeg_header(JpegFile& file, std::span<const std::uint8_t> bytes) {
    if (setjmp(file.errors.leave) != 0) return false;
    jpeg_create_decompress(&file.jpeg);
    file.progress.progress_monitor = count_scans;
    file.jpeg.progress = &file.progress;
    jpeg_mem_src(&file.jpeg, bytes.data(), bytes.size());
    jpeg_read_header(&file.jpeg, TRUE);
    return true;
}
bool start_jpeg(JpegFile& file) {
    if (setjmp(file.errors.leave) != 0) return false;
    jpeg_start_decompress(&file.jpeg);
    return true;
}
bool read_jpeg_rows(JpegFile& file, std::uint8_t* to, std::size_t row) {
    if (setjmp(file.errors.leave) != 0) return false;
    while (file.jpeg.output_scanline < file.jpeg.output_height) {
        std::uint8_t* at = to + row * file.jpeg.output_scanline;
        jpeg_read_scanlines(&file.jpeg, &at, 1);
    }
    jpeg_finish_decompress(&file.jpeg);
    return true;
}

}  // namespace

Try<Image> decode_jpeg(std::span<const std::uint8_t> bytes) {
    JpegFile file;
    file.jpeg.err = jpeg_std_error(&file.errors.base);
    file.errors.base.error_exit = leave_with_message;
    file.errors.base.emit_message = look_at_message;
    const auto refuse = [&] {
        return dp::fail("it is damaged (libjpeg: " + printable(file.errors.why.data(), 80) + ")");
    };
    jpeg_decompress_struct& jpeg = file.jpeg;
    if (!read_jpeg_header(file, bytes)) return refuse();
    if (const auto sides = check_sides(jpeg.image_width, jpeg.image_height); !sides)
        return tl::unexpected(sides.error());
    const bool is_grey = jpeg.jpeg_color_space == JCS_GRAYSCALE;
    const bool is_cmyk = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.out_color_space = is_grey ? JCS_GRAYSCALE : is_cmyk ? JCS_CMYK : JCS_RGB;
    if (!start_jpeg(file)) return refuse();
    const auto channels = static_cast<std::size_t>(jpeg.output_components);
    const std::size_t row = jpeg.output_width * channels;
    std::vector<std::uint8_t> pixels(row * jpeg.output_height);
    if (!read_jpeg_rows(file, pixels.data(), row)) return refuse();
    Image image{jpeg.output_width, jpeg.output_height, is_grey ? 1 : 3, {}};
    if (is_cmyk) {
        image.pixels.resize(pixels.size() / 4 * 3);
        make_rgb(pixels, jpeg.saw_Adobe_marker != 0, image.pixels);
    } else {
        image.pixels = std::move(pixels);
    }
    return image;
}

}  // namespace dp::trainer
