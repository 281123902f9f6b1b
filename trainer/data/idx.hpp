// SPDX-License-Identifier: Apache-2.0
//
// Reads idx files, the format of MNIST (yann.lecun.com/exdb/mnist), for fashion_mnist.cpp: a big-endian u32
// whose last byte is the number of dimensions, one for each dimension, then one byte per element.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct Idx {
    std::vector<std::uint32_t> dimensions;
    std::vector<std::uint8_t> elements;
};

// Reads a file of unsigned bytes with that many dimensions, gzipped or not. The whole file is checked: its
// length, and for gzip its checksum.
Result<Idx> read_idx(const std::filesystem::path& file, std::size_t dimensions);

}  // namespace dp::trainer
