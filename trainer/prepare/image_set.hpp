// SPDX-License-Identifier: Apache-2.0
//
// Pictures that --data-dir names: for cnn and ffn directories of classes as torchvision's ImageFolder has them, for unet2d images with
// masks. Decoded once, brought to the model's channels and size, and kept in the cache (data/image_arrays.hpp).
// commands/preparation.cpp calls it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/load.hpp"
#include "trainer/data/npy.hpp"

namespace dp::trainer {

// A picture: a file, or a row of an array.
struct Picture {
    std::string image;      // from ImageSet::where on; a row's array
    std::string mask = {};  // "": there is none of that name
    std::int64_t row = -1;
    std::int32_t label = 0;
};

struct ImageSet {
    std::filesystem::path where;
    DataSet set = DataSet::fashion_mnist;  // or segmentation
    std::vector<std::string> classes = {};
    std::vector<Picture> train = {}, test = {};  // nothing to test with: a part of the others is
    std::string test_name = {};                  // the directory of the latter
};

// Whether it looks like one, without listing it all.
bool has_image_folder(const std::filesystem::path& where);

// Nothing where there are no pictures of this kind, or idx files or arrays are. The layouts:
//   classes: WHERE[/train]/CLASS/**/*.png, *.jpg or *.jpeg, in the order of their names
//   masks:   WHERE[/train]/images.npy and masks.npy, or images/ and masks/ with files of the same names
// and either with WHERE/val (valid, validation), else WHERE/test, to test with. Names that begin with a dot are passed over.
Result<std::optional<ImageSet>> find_image_set(const std::filesystem::path& where, DataSet set);

struct ConvertedImages {
    std::filesystem::path directory;
    std::string note;  // for people
};
// `request`: its image_size, split and bad_samples. Done again if the files have other names, sizes or dates.
Result<ConvertedImages> convert_images(const ImageSet& images, const DataRequest& request,
                                       const std::filesystem::path& cache);

}  // namespace dp::trainer
