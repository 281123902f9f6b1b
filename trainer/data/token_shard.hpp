// SPDX-License-Identifier: Apache-2.0
//
// Token files in the format of llm.c (github.com/karpathy/llm.c, dev/data/data_common.py): a header of 256
// int32 (20240520, version 1, the number of tokens, zeros), then each token as uint16; little-endian. Data
// prepared for one trains with the other. prepare/text.cpp writes them, token_files.cpp reads them.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "trainer/base/durable.hpp"
#include "trainer/data/token_stream.hpp"

namespace dp::trainer {

// The size that llm.c's own scripts use; the header's number has 31 bits.
inline constexpr std::size_t kTokensOfShard = 100'000'000;

std::string shard_header(std::size_t tokens);
Result<void> write_shard(const std::filesystem::path& file, std::span<const Token> tokens);
// A shard that is written bit by bit.
class ShardFile {
 public:
    static Result<ShardFile> create(const std::filesystem::path& file);
    Result<void> write(std::span<const Token> tokens);
    // Only then the header says how many there are, and the contents are on disk.
    Result<void> finish();
    std::size_t tokens() const { return tokens_; }

 private:
    std::filesystem::path path_;
    DurableFile file_;
    std::size_t tokens_ = 0;

    ShardFile(std::filesystem::path path, DurableFile file)
        : path_(std::move(path)), file_(std::move(file)) {}
};

// Checks the header, and that the file is as long as it says.
Result<TokenRun> open_shard(const std::filesystem::path& file);

}  // namespace dp::trainer
