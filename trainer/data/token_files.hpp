// SPDX-License-Identifier: Apache-2.0
//
// The files of tokens that a --data-dir names, in the formats that people have. tokens.cpp reads them.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

struct TokenFormat {
    std::string_view what;  // for people
    bool (*is_one)(const std::filesystem::path& file);
    // Checks what the file says of itself; reads no tokens.
    Result<TokenRun> (*open)(const std::filesystem::path& file);
};

// In the order of their names.
struct TokenFiles {
    const TokenFormat* format;
    std::vector<std::filesystem::path> train, test;  // maybe none to test with
};

// `where`: a directory of files of one format, a file, or what the names of Megatron's two files begin with. Files called
// *val* are for the test, else those called *test*; if some are called *train*, no others are trained on.
Result<TokenFiles> find_token_files(const std::filesystem::path& where);

// Files by what they are for. `has_word`: whether the name says so.
struct FilesByPurpose {
    std::vector<std::filesystem::path> train, test;
};
using HasWord = bool (*)(const std::filesystem::path& file, std::string_view word);
// Pure: whether a name has a word that begins so: "val_000.bin" and "text-validation.bin" have "val", "interval.bin" and
// "values.bin" do not.
bool has_word(const std::filesystem::path& file, std::string_view word);
FilesByPurpose by_purpose(std::vector<std::filesystem::path> files, HasWord has = has_word);

// Opens them as one stream.
Result<std::vector<TokenRun>> open_token_files(const TokenFormat& format,
                                               std::span<const std::filesystem::path> files);

// Whether a directory has any, also such as find_token_files() refuses.
bool has_token_files(const std::filesystem::path& where);
// All that find_token_files() finds, to know whether they changed; none where it refuses.
std::vector<std::filesystem::path> token_files(const std::filesystem::path& where);

}  // namespace dp::trainer
