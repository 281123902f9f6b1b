// SPDX-License-Identifier: Apache-2.0
//
// Images of one size with their classes or masks, as NumPy's arrays in a directory: what prepare/image_set.cpp makes of the pictures
// that people have. Other programs may read them, too (numpy.load). A large set is read row by row where it lies.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/durable.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

// Says what the arrays are; without it a directory has none.
inline constexpr const char* kImagesFile = "images.json";

// cnn and ffn have so many outputs. A set may have fewer classes: the others never come up.
inline constexpr std::size_t kMostClasses = 10;

struct ImageFacts {
    DataSet set = DataSet::fashion_mnist;  // or segmentation, whose targets are masks
    std::int64_t channels = 1, side = 28;
    std::vector<std::string> classes = {};      // their names, in the order of their numbers
    Affine normalise = kSegmentationNormalise;  // from bytes to what the model sees
};
Result<void> write_image_facts(const std::filesystem::path& directory, const ImageFacts& facts);
Result<ImageFacts> read_image_facts(const std::filesystem::path& directory);

// Writes "PART_images.npy", u8 [images, channels, side, side], and "PART_labels.npy", i32 [images], or "PART_masks.npy", u8
// [images, side, side] of 0 and 1.
class ImageArrayWriter {
 public:
    static Result<ImageArrayWriter> create(const std::filesystem::path& directory, std::string_view part,
                                           const ImageFacts& facts);
    // A row of each.
    Result<void> add(std::span<const std::uint8_t> image, std::span<const std::uint8_t> target);
    Result<void> finish();
    std::int64_t count() const { return count_; }

 private:
    std::filesystem::path images_file_, targets_file_;
    ImageFacts facts_;
    DurableFile images_, targets_;
    std::int64_t count_ = 0;

    ImageArrayWriter(std::filesystem::path images_file, std::filesystem::path targets_file, ImageFacts facts,
                     DurableFile images, DurableFile targets);
};

// Whether the directory has arrays (not whether they are sound).
bool has_image_arrays(const std::filesystem::path& directory);
std::vector<std::filesystem::path> image_array_files(const std::filesystem::path& directory);
// `side`: the model's. More than kMostHeld bytes are streamed.
Result<Dataset> load_image_arrays(const std::filesystem::path& directory, DataSet set, std::int64_t side);

}  // namespace dp::trainer
