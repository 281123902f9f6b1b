// SPDX-License-Identifier: Apache-2.0
//
// Text as a data set: the tokens of `trainer prepare` (or of llm.c's scripts) in sequences of equal length.
// run.cpp calls it for language models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/data/dataset.hpp"

namespace dp::trainer {

// Reads the directory's shards: *train*.bin, and *val*.bin for the test samples, each in the order of their
// names. Sample i is the tokens [i * sequence, (i + 1) * sequence), its target the same shifted by one token;
// sequences cross the borders of documents and shards. All tokens must be below `vocabulary`, the model's.
Result<Dataset> load_tokens(const std::filesystem::path& directory, std::int64_t sequence,
                            std::int64_t vocabulary);
// The shards that load_tokens() reads.
std::vector<std::filesystem::path> token_files(const std::filesystem::path& directory);

}  // namespace dp::trainer
