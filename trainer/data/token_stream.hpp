// SPDX-License-Identifier: Apache-2.0
//
// The tokens of many files as one line of numbers, of which any part is read where it lies: a set may be larger than memory.
// token_files.cpp finds the files, tokens.cpp makes samples of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/fd.hpp"
#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {

// How a file has its tokens; little-endian.
enum class StoredAs { u8, u16, i32, u32, i64, u64 };

constexpr std::int64_t bytes_of(StoredAs type) {
    return type == StoredAs::u8 ? 1 : type == StoredAs::u16 ? 2 : type <= StoredAs::u32 ? 4 : 8;
}

// Tokens that lie one after another in a file.
struct TokenRun {
    std::filesystem::path file;
    Fd opened;
    std::int64_t at = 0;  // the byte of the first
    StoredAs type = StoredAs::u16;
    std::int64_t count = 0;
};

class TokenStream {
 public:
    // All tokens must be below `vocabulary`, which is at most 65536.
    TokenStream(std::vector<TokenRun> runs, std::int64_t vocabulary);

    std::int64_t count() const { return starts_.back(); }
    // Reads the tokens from `first` on, which are there. Of those that the model does not have the error names the largest.
    // Threads may read at the same time.
    Result<void> read(std::int64_t first, std::span<Token> to) const;
    // Has the kernel bring these tokens into memory meanwhile, for a read() that comes soon.
    void expect(std::int64_t first, std::int64_t count) const;

 private:
    std::vector<TokenRun> runs_;
    std::vector<std::int64_t> starts_;  // of each run, and the end of the last
    std::int64_t vocabulary_;

    void each_part(std::int64_t first, std::int64_t count, auto visit) const;
    Result<void> read_run(const TokenRun& run, std::int64_t first, std::span<Token> to) const;
};

}  // namespace dp::trainer
