// SPDX-License-Identifier: Apache-2.0
//
// Images with exact masks, composed from Fashion-MNIST because no segmentation set is packaged anywhere.
// Clothes of all classes lie on a patterned ground, in any size and colour, partly over each other; the mask
// shows where shoes (sandals, sneakers, ankle boots) are visible. Colour, size and brightness give no hint: a
// model must learn shapes and find edges. run.cpp calls it for unet2d.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "trainer/base/result.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

inline constexpr std::array<std::int64_t, 3> kImageSizes{256, 512, 1024};

// The error for any other size; nothing for these.
std::optional<Error> image_size_problem(std::int64_t size);

// `count` training images of size x size pixels, made from the training images of `directory` (idx files, as
// load_fashion_mnist() reads them), and an eighth as many test images from its test images. Features are
// bytes [3, size, size] (red, green, blue), targets bytes [size, size] of 0 and 1. An image depends only on
// seed and number; larger sizes show the same scenes.
Result<Dataset> compose_segmentation(const std::filesystem::path& directory, std::int64_t size,
                                     std::int64_t count, std::uint64_t seed);

// The number of training images that take about 100 MB.
constexpr std::int64_t default_image_count(std::int64_t size) {
    return 512 * 256 * 256 / (size * size);
}

}  // namespace dp::trainer
