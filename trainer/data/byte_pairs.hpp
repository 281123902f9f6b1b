// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair merges (Sennrich, Haddow, Birch 2016) over bytes, with GPT-2's numbers for its tokens: as long as
// two neighbours have a merge, those whose merge comes first in the table become one token, the leftmost of
// equals first. gpt2_tokenizer.cpp calls it for each word.
#ifndef TRAINER_DATA_BYTE_PAIRS_HPP
#define TRAINER_DATA_BYTE_PAIRS_HPP

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/base/result.hpp"
#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {

class BytePairs {
 public:
    // From the lines of vocab.bpe: "#version...", then two tokens a line, each written with a printable
    // character for each of its bytes. The first 256 tokens are the bytes, and each line makes the next one;
    // so GPT-2's encoder.json, which numbers them in the same way, is not needed. `source` is for errors.
    static Result<BytePairs> read(std::string_view merges, const std::string& source);

    // Tokens of bytes and merges.
    std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
    std::string_view text_of(Token token) const { return texts_[token]; }
    // Appends the tokens of a word. n log n in its length: a "word" may be a megabyte of blanks.
    void merge(std::string_view word, std::vector<Token>& tokens) const;

 private:
    std::vector<std::string> texts_;  // of each token, in bytes
    std::array<Token, 256> tokens_of_bytes_{};
    std::unordered_map<std::uint32_t, Token> merges_;  // by pair()

    static std::uint32_t pair(Token left, Token right) { return std::uint32_t{left} << 16 | right; }
};

}  // namespace dp::trainer

#endif
