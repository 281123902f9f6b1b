// SPDX-License-Identifier: Apache-2.0
//
// Token files in the format of llm.c (github.com/karpathy/llm.c, dev/data/data_common.py): a header of 256
// int32 (20240520, version 1, the number of tokens, zeros), then each token as uint16; little-endian. Data
// prepared for one trains with the other. prepare/text.cpp writes them, token_files.cpp reads them.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

// The size that llm.c's own scripts use; the header's number has 31 bits.
inline constexpr std::size_t kTokensOfShard = 100'000'000;

std::string shard_header(std::size_t tokens);
Result<void> write_shard(const std::filesystem::path& file, std::span<const Token> tokens);
// Checks the header, and that the file is as long as it says.
Result<TokenRun> open_shard(const std::filesystem::path& file);

}  // namespace dp::trainer
