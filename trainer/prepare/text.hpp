// SPDX-License-Identifier: Apache-2.0
//
// Texts into shards of tokens. prepare.cpp calls it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {

// The files that `paths` name: each file, and in each directory and below it those called *.txt, in the order
// of their names.
Result<std::vector<std::filesystem::path>> text_files(std::span<const std::filesystem::path> paths);

// Writes train_*.bin, val_*.bin and the tokenizer into `directory`. Each file is a document, and stands
// behind an end of text; they come in an order that is drawn once and for all, and the last `validation` part
// of all tokens is for the test. Returns a few words about it.
Result<std::string> write_token_shards(std::span<const std::filesystem::path> documents, Tokenizer& tokenizer,
                                       double validation, const std::filesystem::path& directory);

}  // namespace dp::trainer
