// SPDX-License-Identifier: Apache-2.0
//
// What tokenizers of byte pairs have in common: a text is split into words (gpt2_words.cpp), and the bytes of each word are merged
// (byte_pairs.cpp). byte_pair_tokenizer.cpp makes GPT-2's, hugging_face_tokenizer.cpp and tiktoken.cpp those of other files.
#pragma once

#include <map>

#include "trainer/data/byte_pairs.hpp"

namespace dp::trainer {

struct BytePairParts {
    std::string_view name;
    BytePairs pairs;
    Token end_of_text = 0;
    std::map<Token, std::string> special =
        {};                       // tokens that no text is encoded as, and what is printed for them
    std::string file_name, file;  // as Tokenizer::file()
    std::string config = {};      // as Tokenizer::config()
};
std::unique_ptr<Tokenizer> make_byte_pair_tokenizer(BytePairParts parts);

// The file is not one of GPT-2's kind, with the reason and what to do.
inline tl::unexpected<Error> not_taken(const std::string& source, const std::string& why) {
    return fail(Fault::usage,
                "{}: {}; give a byte-level tokenizer as GPT-2's is, or prepare the tokens elsewhere", source,
                why);
}
// Numbers of tokens have 16 bits.
inline constexpr std::uint64_t kMostTokenNumber = 0xFFFF;
inline constexpr std::string_view kTooManyTokens = "and this trainer's models have at most 65536 tokens";

}  // namespace dp::trainer
