// SPDX-License-Identifier: Apache-2.0
//
// Fashion-MNIST (or MNIST itself: the same four idx files): 28x28 images in 10 classes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "trainer/data/dataset.hpp"
#include "trainer/data/idx.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kSide = 28;
constexpr std::int64_t kPixels = 784;
constexpr std::uint8_t kClasses = 10;

// Gzipped or not; the gzipped name if neither exists, for the error to name.
fs::path find(const fs::path& directory, const std::string& name) {
    std::error_code ignored;
    return fs::exists(directory / name, ignored) ? directory / name : directory / (name + ".gz");
}

// Fashion-MNIST's mean and deviation are 0.2860 and 0.3530, MNIST's 0.1307 and 0.3081.
Affine normalisation_of_all(std::span<const std::uint8_t> pixels) {
    std::uint64_t sum = 0, squares = 0;
    for (std::size_t i = 0; i < pixels.size(); i += kPixels) {
        std::uint32_t of_image = 0, squares_of_image = 0;  // the compiler adds several of these at once
        for (const std::uint32_t pixel : pixels.subspan(i, kPixels)) {
            of_image += pixel;
            squares_of_image += pixel * pixel;
        }
        sum += of_image;
        squares += squares_of_image;
    }
    return normalisation_of(sum, squares, pixels.size());
}

Result<Split> load_part(const fs::path& image_file, const fs::path& label_file) {
    auto images = DP_TRY(read_idx(image_file, 3));
    auto labels = DP_TRY(read_idx(label_file, 1));

    const auto& size = images.dimensions;
    if (size[1] != kSide || size[2] != kSide)
        return fail(Fault::usage, "{}: images of {}x{} pixels, but cnn and ffn take 28x28",
                    image_file.string(), size[1], size[2]);
    if (labels.dimensions[0] != size[0])
        return fail(Fault::usage, "{}: {} labels for {} images", label_file.string(), labels.dimensions[0],
                    size[0]);
    if (std::ranges::any_of(labels.elements, [](auto label) { return label >= kClasses; }))
        return fail(Fault::usage, "{}: a label is not in 0..9", label_file.string());

    Split samples;
    samples.count = size[0];
    samples.features = {Type::u8, kPixels, std::move(images.elements)};
    const std::vector<std::int32_t> classes(labels.elements.begin(), labels.elements.end());
    samples.targets = Matrix::of<std::int32_t>(Type::i32, 1, classes);
    return samples;
}

}  // namespace

Affine normalisation_of(std::uint64_t sum, std::uint64_t sum_of_squares, std::uint64_t of) {
    const auto count = static_cast<double>(of);
    const double mean = static_cast<double>(sum) / count;
    const double deviation = std::sqrt(static_cast<double>(sum_of_squares) / count - mean * mean);
    const auto digits = [](double amount) {
        return static_cast<float>(std::round(amount / 255 * 10'000) / 10'000);
    };
    return normalised_by(digits(mean), digits(deviation) > 0 ? digits(deviation) : 1);
}

Result<Dataset> load_fashion_mnist(const fs::path& directory) {
    const auto files = fashion_mnist_files(directory);
    auto train = DP_TRY(load_part(files[0], files[1]));
    auto test = DP_TRY(load_part(files[2], files[3]));
    train.normalise = test.normalise = normalisation_of_all(train.features.bytes);
    return Dataset{std::move(train), std::move(test), directory.string()};
}

bool has_fashion_mnist(const fs::path& directory) {
    std::error_code ignored;
    return fs::exists(fashion_mnist_files(directory).front(), ignored);
}

std::vector<fs::path> fashion_mnist_files(const fs::path& directory) {
    return {find(directory, "train-images-idx3-ubyte"), find(directory, "train-labels-idx1-ubyte"),
            find(directory, "t10k-images-idx3-ubyte"), find(directory, "t10k-labels-idx1-ubyte")};
}

}  // namespace dp::trainer
