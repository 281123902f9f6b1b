// SPDX-License-Identifier: Apache-2.0
//
// Images with exact masks, composed of Fashion-MNIST's: no segmentation set is packaged anywhere. Clothes of
// all classes lie on a patterned ground, in any size and colour, partly over each other; the mask is where
// shoes (sandals, sneakers, ankle boots) are seen. Colour, size and brightness say nothing about that: a
// model has to know shapes, and to find edges. run.cpp calls it for unet2d.
#ifndef TRAINER_DATA_SEGMENTATION_HPP
#define TRAINER_DATA_SEGMENTATION_HPP

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "trainer/base/result.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

inline constexpr std::array<std::int64_t, 3> kImageSizes{256, 512, 1024};

// The line for a size that is none of those; nothing where it is.
std::optional<Error> image_size_problem(std::int64_t size);

// `count` training images of size x size pixels, of the training images of `directory` (idx files, as
// load_fashion_mnist() reads them), and an eighth as many test images of its test images. Features are bytes
// [3, size, size] (red, green, blue), targets bytes [size, size] of 0 and 1. An image depends on seed and
// number alone, on no other image; the larger sizes show the same scenes.
Result<Dataset> compose_segmentation(const std::filesystem::path& directory, std::int64_t size,
                                     std::int64_t count, std::uint64_t seed);

// As many training images as take about 100 MB.
constexpr std::int64_t default_image_count(std::int64_t size) {
    return 512 * 256 * 256 / (size * size);
}

}  // namespace dp::trainer

#endif
