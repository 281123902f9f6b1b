// SPDX-License-Identifier: Apache-2.0
//
// Rows of images and of their targets that are read when they are needed. image_arrays.cpp makes them, DeviceSamples reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/fd.hpp"
#include "trainer/base/result.hpp"

namespace dp::trainer {

// Rows of equal length, one after another in a file.
struct StoredRows {
    std::filesystem::path file;
    Fd opened;
    std::int64_t at = 0;   // the byte of the first
    std::int64_t row = 0;  // bytes of one
};

class StoredImages {
 public:
    StoredImages(StoredRows images, StoredRows targets)
        : images_(std::move(images)), targets_(std::move(targets)) {}

    // Reads a sample, which is there. Threads may read at the same time.
    Result<void> read(std::int64_t sample, std::span<std::uint8_t> image,
                      std::span<std::uint8_t> target) const;
    // The sample is read soon: the kernel brings it into memory meanwhile.
    void expect(std::int64_t sample) const;

 private:
    StoredRows images_, targets_;
};

}  // namespace dp::trainer
