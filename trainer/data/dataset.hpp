// SPDX-License-Identifier: Apache-2.0
//
// Data sets in host memory: samples of equal length, each with a target. load.cpp chooses one; the sources
// are fashion_mnist.cpp (through idx.cpp), line.cpp, tokens.cpp and segmentation.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

// Numbers of one type, [count, columns], row by row.
struct Matrix {
    Type type = Type::f32;
    std::int64_t columns = 0;
    std::vector<std::uint8_t> bytes;

    const void* data() const { return bytes.data(); }
};

struct Samples {
    std::int64_t count = 0;
    Matrix features;
    Affine normalise;  // from stored features to what the model sees
    Matrix targets;
    // Each number's target is the next number (text: the next token). `features` then has one more number
    // than its rows need, and `targets` has no bytes of its own.
    bool next_is_target = false;
};

enum class DataSet { fashion_mnist, line, segmentation, tokens };

struct Dataset {
    Samples train;
    Samples test;
    std::string source;  // for people: where it comes from
};

// Of pixels 0..255, by their mean and standard deviation in 0..1.
constexpr Affine normalised_by(float mean, float deviation) {
    return {1 / (255 * deviation), -mean / deviation};
}
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
Dataset make_line();

}  // namespace dp::trainer
