// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers that people bring (--tokenizer): Hugging Face's tokenizer.json with its tokenizer_config.json or
// generation_config.json (a line before it), tiktoken's ranks, GPT-2's merges. Whatever is in them, they are refused in one line,
// or encode any bytes and give them back. The first byte chooses.
#include "target.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/data/tokenizer_config.hpp"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace dp;
    using namespace dp::trainer;
    fuzz::Bytes bytes(data, size);
    const auto kind = bytes.byte();
    const std::string file(bytes.take(std::string_view::npos));
    if (kind == 'c') {
        const auto end = file.find('\n');
        const std::string config = file.substr(0, end);
        BesideTokenizer beside{config, std::nullopt, std::nullopt, "config"};
        if (const auto eos = eos_token_in(config)) beside.eos_token = *eos;
        if (const auto eos = eos_token_id_in(config)) beside.eos_token_id = *eos;
        const auto json = end == std::string::npos ? "" : file.substr(end + 1);
        const auto beside_it = make_hugging_face_tokenizer_beside(json, "file", beside);
        fuzz::must(!beside_it || (*beside_it)->end_of_text() < (*beside_it)->vocabulary(),
                   "the end of a text is a token");
        fuzz::must(eos_token_in(tokenizer_config_text(config, "end")).has_value() ||
                       !eos_token_in(config).has_value(),
                   "what is written can be read");
        return 0;
    }
    const auto made = kind == 'h'   ? make_hugging_face_tokenizer(file, "file")
                      : kind == 't' ? make_tiktoken_tokenizer(file, "file")
                                    : make_gpt2_tokenizer(file, "file");
    if (!made) {
        const std::string& message = made.error().message;
        fuzz::must(message.rfind("file: ", 0) == 0, "a refusal says where");
        fuzz::must(message.find('\n') == std::string::npos, "a refusal is one line");
        return 0;
    }
    Tokenizer& tokenizer = **made;
    fuzz::must(tokenizer.vocabulary() <= 65536, "tokens have 16 bits");
    fuzz::must(tokenizer.end_of_text() < tokenizer.vocabulary(), "the end of a text is a token");
    for (const std::string text : {"lower low\n\n  aaaaaaa 12", "l\xC3\xA4wer", "\x01\x7f"}) {
        std::vector<Token> tokens;
        fuzz::must(tokenizer.encode(text, tokens).has_value(), "UTF-8 is taken");
        for (const Token token : tokens)
            fuzz::must(token < tokenizer.vocabulary(), "tokens are of the vocabulary");
        fuzz::must(tokenizer.decode(tokens) == text, "what was encoded is decoded");
    }
    return 0;
}
