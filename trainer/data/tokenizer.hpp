// SPDX-License-Identifier: Apache-2.0
//
// Converts text to tokens and back: byte-pair encodings (byte_pair_tokenizer.cpp) from the files that people have, and plain bytes.
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

// Hugging Face's tokenizers' (https://huggingface.co/docs/tokenizers). What this trainer notes of its own has the same name, and
// no "model".
inline constexpr std::string_view kTokenizerFile = "tokenizer.json";
// tiktoken's, under the name that save_tokenizer() gives it.
inline constexpr std::string_view kRanksFile = "ranks.tiktoken";

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// A larger file is of no tokenizer with 65536 tokens, and nothing of it is read.
inline constexpr std::int64_t kLargestTokenizerFile = std::int64_t{32} << 20;

struct TokenizerFile {
    std::string name;
    std::string_view contents;
};

class Tokenizer {
 public:
    virtual ~Tokenizer() = default;

    virtual std::string_view name() const = 0;    // "gpt2", "bytes", "huggingface" or "tiktoken"
    virtual std::int64_t vocabulary() const = 0;  // one more than the largest token
    // Precedes each document; no text is encoded as it.
    virtual Token end_of_text() const { return static_cast<Token>(vocabulary() - 1); }

    // Appends the tokens of a text. Fails if the tokenizer does not accept these bytes; names no file.
    virtual Result<void> encode(std::string_view text, std::vector<Token>& tokens) = 0;
    // The text of any tokens. Tokens beyond the vocabulary, which a model with a padded one may draw, are
    // left out. Single tokens need not be UTF-8.
    std::string decode(std::span<const Token> tokens) const;

    // The file that open_tokenizer() needs; without a name: it needs none.
    virtual TokenizerFile file() const { return {}; }
    // The contents of the tokenizer_config.json beside it; "": there was none. And what end_of_text() looks like there.
    virtual std::string_view config() const { return {}; }
    virtual std::string end_of_text_name() const { return std::string(kEndOfText); }
    // The contents of the merges.txt and vocab.json that Hugging Face's transformers read; "": there are none.
    virtual std::string merges() const { return {}; }
    virtual std::string vocabulary_json() const { return {}; }

 protected:
    virtual std::string_view text_of(Token token) const = 0;
};

// Bytes are the tokens 0 .. 255, and 256 is the end of a text: no vocabulary to fetch, and any file works.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// From the contents of a file; `source` is for errors. They split a text into words as GPT-2 does.
using MakeTokenizer = Result<std::unique_ptr<Tokenizer>>(std::string contents, const std::string& source);
MakeTokenizer make_gpt2_tokenizer;          // GPT-2's vocab.bpe
MakeTokenizer make_hugging_face_tokenizer;  // tokenizer.json, of GPT-2's kind
// The same, with what lies beside it and says which token ends a text (tokenizer_config.hpp).
struct BesideTokenizer {
    std::string tokenizer_config;  // the contents of the file, or ""
    std::optional<std::string> eos_token = {};
    std::optional<std::int64_t> eos_token_id = {};
    std::string source = {};  // which of the files says it, for errors
};
Result<std::unique_ptr<Tokenizer>> make_hugging_face_tokenizer_beside(std::string contents,
                                                                      const std::string& source,
                                                                      const BesideTokenizer& beside);
MakeTokenizer make_tiktoken_tokenizer;  // lines of a token's bytes in base64, a blank and its number

// A tokenizer.json, *.tiktoken, vocab.bpe or merges.txt, or a directory that has one.
Result<std::unique_ptr<Tokenizer>> open_tokenizer_file(const std::filesystem::path& where);
// The token that begins each document of this data, if their tokenizer or a note of it lies with them.
std::optional<std::int64_t> document_begins_in(const std::filesystem::path& where);
// The first of these that a directory has, or the directory of a file; nothing if there is none.
std::optional<std::filesystem::path> tokenizer_file_in(const std::filesystem::path& where);

// Writes what open_tokenizer() reads into an existing directory.
Result<void> save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory);
// The vocabulary of such a directory, or of a tokenizer file there; nothing if it has none that this trainer reads.
std::optional<std::int64_t> vocabulary_of(const std::filesystem::path& where);
// The tokenizer of a directory that `trainer prepare` has filled, or that has a tokenizer's file.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::filesystem::path& directory);

}  // namespace dp::trainer
