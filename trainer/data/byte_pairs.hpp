// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair merges (Sennrich, Haddow, Birch 2016) over bytes: as long as two neighbours have a merge, the pair whose merge comes
// first in the table becomes one token, the leftmost one first. byte_pair_tokenizer.cpp calls it for each word.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

    // Tokens that have numbers of their own: `texts` are their bytes by number, "" where a number is of no text. All bytes must
    // have a token, and all texts must differ. An error is the reason alone.
    static Try<BytePairs> of_texts(std::vector<std::string> texts);
    // Adds the next merge; its halves and what they make must be tokens. An error is the reason alone.
    Try<void> add_merge(const std::string& left, const std::string& right);
    // Adds all merges that make a token, in the order of its number, as tiktoken takes them.
    void merge_by_number();
    // A word that is a token is that token, whatever the merges make of it.
    void take_whole_words() { takes_whole_words_ = true; }

    // One more than the largest number of a token.
    std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
    std::string_view text_of(Token token) const { return texts_[token]; }
    // As vocab.bpe writes it: a printable character per byte, in UTF-8.
    std::string printable_text_of(Token token) const;
    // The other way; nothing if it has other characters.
    static std::optional<std::string> bytes_of(std::string_view printable_text);
    // Appends the tokens of a word. Takes n log n time: a "word" may be a megabyte of blanks.
    void merge(std::string_view word, std::vector<Token>& tokens) const { merge(word, kAll, tokens); }
    // The lines of vocab.bpe, of merges that make tokens in the order of their numbers.
    std::string merge_lines() const;

 private:
    struct Made {
        std::uint32_t rank;  // the merge's place in the table
        Token token;
    };
    static constexpr std::uint32_t kAll = 0xFFFFFFFF;

    std::vector<std::string> texts_;  // of each token, in bytes
    std::unordered_map<std::string, Token> tokens_;
    std::array<Token, 256> tokens_of_bytes_{};
    std::unordered_map<std::uint32_t, Made> merges_;  // by pair()
    std::uint32_t next_rank_ = 0;                     // of merges that are added: their place in the list
    bool takes_whole_words_ = false;

    static std::uint32_t pair(Token left, Token right) { return std::uint32_t{left} << 16 | right; }
    // With the merges before that one.
    void merge(std::string_view word, std::uint32_t before, std::vector<Token>& tokens) const;
};

}  // namespace dp::trainer
