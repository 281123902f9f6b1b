// SPDX-License-Identifier: Apache-2.0
//
// Texts into shards of tokens. prepare.cpp calls it.
#pragma once

#include <filesystem>

#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {

// The files that `paths` name: each file, and those called *.txt below each directory, sorted by name.
Result<std::vector<std::filesystem::path>> text_files(std::span<const std::filesystem::path> paths);

// Writes train_*.bin, val_*.bin and the tokenizer into `directory`. Each file is a document behind an end of
// text; they are shuffled, and the last `validation` part of all tokens is for the test. Returns a summary.
Result<std::string> write_token_shards(std::span<const std::filesystem::path> documents, Tokenizer& tokenizer,
                                       double validation, const std::filesystem::path& directory);

}  // namespace dp::trainer
