// SPDX-License-Identifier: Apache-2.0
//
// Data sets in host memory: samples of equal length, each with a target; and their sources, fashion_mnist.cpp
// (through idx.cpp), linear_regression.cpp, segmentation.cpp and tokens.cpp. load.cpp chooses one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/sequences.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Numbers of one type, [count, columns], row by row.
struct Matrix {
    Type type = Type::f32;
    std::int64_t columns = 0;
    std::vector<std::uint8_t> bytes;

    template <typename T>
    static Matrix of(Type type, std::int64_t columns, std::span<const T> numbers) {
        const auto* begin = reinterpret_cast<const std::uint8_t*>(numbers.data());
        return {type, columns, {begin, begin + numbers.size_bytes()}};
    }
};

struct Split {
    std::int64_t count = 0;
    Matrix features;
    Affine normalise;  // from stored features to what the model sees
    Matrix targets;
    // Each number's target is the next number (text: the next token). `features` then has one more number
    // than its rows need, and `targets` has no bytes of its own.
    bool next_is_target = false;
    // Set for tokens that would take too much memory: rows are read when they are needed, and the matrices have no bytes.
    std::optional<StreamedRows> streamed = {};
};

// Tells whether samples are another run's, without reading all of them: a hash of their number, length and
// types, and of 4096 pieces spread evenly over them. Two sets that differ in more than a few places differ.
std::string fingerprint_of(const Split& samples);

enum class DataSet { fashion_mnist, linear_regression, segmentation, tokens };

struct Dataset {
    Split train;
    Split test;
    std::string source;  // for people: where it comes from
};

// Of pixels 0..255, by their mean and standard deviation in 0..1.
constexpr Affine normalised_by(float mean, float deviation) {
    return {1 / (255 * deviation), -mean / deviation};
}
// By the mean and the standard deviation of `count` pixels, with four digits, as they are published.
Affine normalisation_of(std::uint64_t sum, std::uint64_t sum_of_squares, std::uint64_t count);
inline constexpr std::int64_t kImageSide = 28;  // of cnn's and ffn's images
inline constexpr Affine kFashionMnistNormalise = normalised_by(0.2860f, 0.3530f);
inline constexpr Affine kSegmentationNormalise{1 / 64.0f, -2};  // about mean 0 and deviation 1

// Debian's package dataset-fashion-mnist puts it there.
inline const std::filesystem::path kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

// Images of 28x28 and their classes 0..9 from the four idx files of MNIST, gzipped or not; normalised by the
// mean and the deviation of the training images.
Result<Dataset> load_fashion_mnist(const std::filesystem::path& directory);
// Whether the directory has these files (not whether they are sound).
bool has_fashion_mnist(const std::filesystem::path& directory);
// The four files that load_fashion_mnist() reads; they need not exist.
std::vector<std::filesystem::path> fashion_mnist_files(const std::filesystem::path& directory);

// y = 0.7 x + 0.3 at x = 0, 0.001, ... 0.999; the test samples are the training samples.
Dataset make_linear_regression();

// Images with exact masks, composed from Fashion-MNIST because no segmentation set is packaged anywhere.
// Clothes of all classes lie on a patterned ground, in any size and colour, partly over each other; the mask
// shows where shoes (sandals, sneakers, ankle boots) are visible. Colour, size and brightness give no hint: a
// model must learn shapes and find edges.
//
// `count` training images of size x size pixels (256, 512 or 1024), made from the training images of
// load_fashion_mnist(), and an eighth as many test images from its test images. Features are bytes
// [3, size, size] (red, green, blue), targets bytes [size, size] of 0 and 1. An image depends only on seed
// and number; larger sizes show the same scenes.
Result<Dataset> compose_segmentation(const std::filesystem::path& directory, std::int64_t size,
                                     std::int64_t count, std::uint64_t seed);
// The number of training images that take about 100 MB.
constexpr std::int64_t default_image_count(std::int64_t size) {
    return 512 * 256 * 256 / (size * size);
}

// Text: tokens in sequences of equal length, from the files that token_files.hpp finds. Sample i is the tokens
// [i * sequence, (i + 1) * sequence), its target the same shifted by one token; sequences cross the borders of
// documents and files. All tokens must be below `vocabulary`, the model's. Sets of more than kMostHeld bytes are streamed.
inline constexpr std::int64_t kMostHeld = std::int64_t{64} << 20;

// The parts of a set without files to test with: to train on, to test with, and the rest for neither. In proportion.
struct TrainTestRest {
    double train = 0, test = 0, rest = 0;
};
// Without `split` such a set's last twentieth is for the test, of large ones a million tokens.
Result<Dataset> load_tokens(const std::filesystem::path& where, std::int64_t sequence,
                            std::int64_t vocabulary, const std::optional<TrainTestRest>& split = {});

// Sets of tokens, and the weights by which samples are taken from them.
struct DataMix {
    struct Part {
        std::filesystem::path where;
        double weight;
    };
    std::vector<Part> parts;
};
// An epoch ends when the samples of one set are used up. `seed` decides which samples of the others it has.
Result<Dataset> mix_tokens(const DataMix& mix, std::int64_t sequence, std::int64_t vocabulary,
                           std::uint64_t seed, const std::optional<TrainTestRest>& split = {});

}  // namespace dp::trainer
