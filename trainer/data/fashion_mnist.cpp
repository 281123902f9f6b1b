// SPDX-License-Identifier: Apache-2.0
//
// Fashion-MNIST (or MNIST itself: the same four idx files): 28x28 images in 10 classes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trainer/data/dataset.hpp"
#include "trainer/data/idx.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kSide = 28;
constexpr std::int64_t kPixels = 784;
constexpr std::uint8_t kClasses = 10;
// Mean and standard deviation of Fashion-MNIST's training pixels, in 0..1.
constexpr float kMean = 0.2860f, kDeviation = 0.3530f;

// The file itself, gzipped or not; the gzipped name where neither is there, for the error to name.
fs::path find(const fs::path& directory, const std::string& name) {
    std::error_code ignored;
    if (fs::exists(directory / name, ignored)) return directory / name;
    return directory / (name + ".gz");
}

// Of "train" or "t10k".
fs::path image_file_of(const fs::path& directory, const std::string& part) {
    return find(directory, part + "-images-idx3-ubyte");
}
fs::path label_file_of(const fs::path& directory, const std::string& part) {
    return find(directory, part + "-labels-idx1-ubyte");
}

Result<Samples> load_part(const fs::path& directory, const std::string& part) {
    const fs::path image_file = image_file_of(directory, part);
    const fs::path label_file = label_file_of(directory, part);
    auto images = read_idx(image_file, 3);
    if (!images) return tl::make_unexpected(images.error());
    auto labels = read_idx(label_file, 1);
    if (!labels) return tl::make_unexpected(labels.error());

    const auto& size = images->dimensions;
    if (size[1] != kSide || size[2] != kSide) {
        return fail(Fault::usage, fmt::format("{}: images of {}x{} pixels, but cnn and ffn take 28x28",
                                              image_file.string(), size[1], size[2]));
    }
    if (labels->dimensions[0] != size[0]) {
        return fail(Fault::usage, fmt::format("{}: {} labels for {} images", label_file.string(),
                                              labels->dimensions[0], size[0]));
    }
    if (std::any_of(labels->elements.begin(), labels->elements.end(),
                    [](auto label) { return label >= kClasses; })) {
        return fail(Fault::usage, fmt::format("{}: a label is not in 0..9", label_file.string()));
    }

    Samples samples;
    samples.count = size[0];
    samples.features = {Type::u8, kPixels, std::move(images->elements)};
    samples.normalise = {1 / (255 * kDeviation), -kMean / kDeviation};
    const std::vector<std::int32_t> classes(labels->elements.begin(), labels->elements.end());
    samples.targets = {Type::i32, 1, std::vector<std::uint8_t>(classes.size() * sizeof(std::int32_t))};
    std::memcpy(samples.targets.bytes.data(), classes.data(), samples.targets.bytes.size());
    return samples;
}

}  // namespace

Result<Dataset> load_fashion_mnist(const fs::path& directory) {
    auto train = load_part(directory, "train");
    if (!train) return tl::make_unexpected(train.error());
    auto test = load_part(directory, "t10k");
    if (!test) return tl::make_unexpected(test.error());
    return Dataset{std::move(*train), std::move(*test), directory.string()};
}

bool has_fashion_mnist(const fs::path& directory) {
    std::error_code ignored;
    return fs::exists(image_file_of(directory, "train"), ignored);
}

std::vector<fs::path> fashion_mnist_files(const fs::path& directory) {
    return {image_file_of(directory, "train"), label_file_of(directory, "train"),
            image_file_of(directory, "t10k"), label_file_of(directory, "t10k")};
}

}  // namespace dp::trainer
