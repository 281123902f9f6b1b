// SPDX-License-Identifier: Apache-2.0
//
// Converts text to tokens and back: GPT-2's byte-pair encoding (gpt2_tokenizer.cpp), and plain bytes.
// `trainer prepare` encodes with one and stores with the tokens what open_tokenizer() needs, so that
// generating text needs nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

using Token = std::uint16_t;

// GPT-2's merges, under the name of their publication.
inline constexpr std::string_view kMergesFile = "vocab.bpe";

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class Tokenizer {
 public:
    virtual ~Tokenizer() = default;

    virtual std::string_view name() const = 0;  // "gpt2" or "bytes"
    virtual std::int64_t vocabulary() const = 0;
    // Precedes each document; no text is encoded as it.
    Token end_of_text() const { return static_cast<Token>(vocabulary() - 1); }

    // Appends the tokens of a text. Fails if the tokenizer does not accept these bytes; names no file.
    virtual Result<void> encode(std::string_view text, std::vector<Token>& tokens) = 0;
    // The text of any tokens. Tokens beyond the vocabulary, which a model with a padded one may draw, are
    // left out. Single tokens need not be UTF-8.
    std::string decode(std::span<const Token> tokens) const;

    // The contents of kMergesFile, which open_tokenizer() needs besides tokenizer.json; "": it needs none.
    virtual std::string_view merges() const { return {}; }
    // The contents of the vocab.json that Hugging Face's transformers read beside these merges; "": there is none.
    virtual std::string vocabulary_json() const { return {}; }

 protected:
    virtual std::string_view text_of(Token token) const = 0;
};

// Bytes are the tokens 0 .. 255, and 256 is the end of a text: no vocabulary to fetch, and any file works.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// GPT-2's, from the contents of its vocab.bpe. `source` is for errors.
Result<std::unique_ptr<Tokenizer>> make_gpt2_tokenizer(std::string merges, const std::string& source);

// Writes what open_tokenizer() reads into an existing directory.
Result<void> save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory);
// The vocabulary of such a directory; nothing if it has no tokenizer, as directories made by llm.c.
std::optional<std::int64_t> vocabulary_of(const std::filesystem::path& directory);
// The tokenizer of a directory that `trainer prepare` has filled.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::filesystem::path& directory);

}  // namespace dp::trainer
