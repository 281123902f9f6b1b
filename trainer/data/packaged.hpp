// SPDX-License-Identifier: Apache-2.0
//
// Debian's package dataset-fashion-mnist: its files, and whether they are unchanged. load.cpp checks before
// it reads them, `trainer prepare` before it copies them.
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct DataFile {
    std::string_view name;
    std::string_view sha256;
};

// The same as at github.com/zalandoresearch/fashion-mnist.
inline constexpr std::array<DataFile, 4> kFashionMnistFiles{{
    {"train-images-idx3-ubyte.gz", "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"},
    {"train-labels-idx1-ubyte.gz", "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"},
    {"t10k-images-idx3-ubyte.gz", "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"},
    {"t10k-labels-idx1-ubyte.gz", "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"},
}};

// Works if it is installed, too; a plain `install` would leave a damaged file as it is.
inline constexpr std::string_view kReinstallFashionMnist =
    "apt-get install --reinstall dataset-fashion-mnist";

// A directory with known files, by its path or a link to it.
struct KnownDirectory {
    std::filesystem::path path;
    std::span<const DataFile> files;
};

// Checks those of `files` that are in that directory; files elsewhere pass.
Result<void> check_packaged(std::span<const std::filesystem::path> files, const KnownDirectory& known);

}  // namespace dp::trainer
