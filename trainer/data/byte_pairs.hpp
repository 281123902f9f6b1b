// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair merges (Sennrich, Haddow, Birch 2016) over bytes, with GPT-2's token numbers: as long as two
// neighbours have a merge, the pair whose merge comes first in the table becomes one token, the leftmost one
// first. gpt2_tokenizer.cpp calls it for each word.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {

class BytePairs {
 public:
    // From the lines of vocab.bpe: "#version...", then two tokens per line, written with one printable
    // character per byte. The first 256 tokens are the bytes, and each line makes the next one, so GPT-2's
    // encoder.json, which has the same numbers, is not needed. `source` is for errors.
    static Result<BytePairs> read(std::string_view merges, const std::string& source);

    // The number of tokens, bytes and merges.
    std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
    std::string_view text_of(Token token) const { return texts_[token]; }
    // As vocab.bpe writes it: a printable character per byte, in UTF-8.
    std::string printable_text_of(Token token) const;
    // Appends the tokens of a word. Takes n log n time: a "word" may be a megabyte of blanks.
    void merge(std::string_view word, std::vector<Token>& tokens) const;

 private:
    std::vector<std::string> texts_;  // of each token, in bytes
    std::array<Token, 256> tokens_of_bytes_{};
    std::unordered_map<std::uint32_t, Token> merges_;  // by pair()

    static std::uint32_t pair(Token left, Token right) { return std::uint32_t{left} << 16 | right; }
};

}  // namespace dp::trainer
