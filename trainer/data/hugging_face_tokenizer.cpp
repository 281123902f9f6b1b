// SPDX-License-Identifier: Apache-2.0
//
// Hugging Face's tokenizer.json (github.com/huggingface/tokenizers; the parts and their names are those of its serde types), if it
// encodes as GPT-2's does: BPE, before it ByteLevel, nothing else. All else would give other tokens than the library, and is refused.
// Post-processor and decoder are not looked at: this trainer puts the end of a text before each document itself.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "trainer/data/byte_pair_tokenizer.hpp"

namespace dp::trainer {
namespace {

using HfJson = nlohmann::json;

// What ends a text, by the names that tokenizers of this kind have for it.
constexpr std::string_view kEndsOfText[] = {kEndOfText, "<|end_of_text|>", "</s>", "<eos>"};

// Null where there is none.
const HfJson& part_of(const HfJson& json, const char* name) {
    static const HfJson none;
    const auto found = json.is_object() ? json.find(name) : json.end();
    return json.is_object() && found != json.end() ? *found : none;
}

std::string type_of_part(const HfJson& json) {
    const HfJson& type = part_of(json, "type");
    return type.is_string() ? printable(type.get_ref<const std::string&>(), 40) : "none";
}

bool is_nothing(const HfJson& json) {
    return json.is_null() || json == false || json == 0 || json == "";
}

Try<void> check_words(const HfJson& json) {
    const HfJson* words = &part_of(json, "pre_tokenizer");
    // As some write it: a sequence of one.
    if (const HfJson& several = part_of(*words, "pretokenizers");
        type_of_part(*words) == "Sequence" && several.is_array() && several.size() == 1)
        words = &several[0];
    const std::string type = type_of_part(*words);
    if (type != "ByteLevel")
        return dp::fail(fmt::format("its pre_tokenizer is {}, and this trainer has ByteLevel alone", type));
    if (part_of(*words, "add_prefix_space") != false)
        return dp::fail("its pre_tokenizer adds a blank before a text (add_prefix_space)");
    if (part_of(*words, "use_regex") == false)
        return dp::fail("its pre_tokenizer splits no words (use_regex is false)");
    return {};
}

Try<void> check_kind(const HfJson& json) {
    const HfJson& model = part_of(json, "model");
    if (!model.is_object()) return dp::fail("it is no tokenizer.json of Hugging Face's: it has no model");
    // Older files do not name BPE.
    const std::string type = type_of_part(model);
    if (type != "BPE" && type != "none")
        return dp::fail(fmt::format("its model is {}, and this trainer has BPE alone", type));
    if (const HfJson& normalizer = part_of(json, "normalizer"); !normalizer.is_null())
        return dp::fail(fmt::format("it changes a text before (normalizer {})", type_of_part(normalizer)));
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
        if (!is_nothing(part_of(model, name))) return dp::fail(fmt::format("its model has a {}", name));
    return check_words(json);
}

Try<Token> number_of(const HfJson& json, const std::string& text) {
    if (!json.is_number_unsigned())
        return dp::fail(fmt::format("the number of its token '{}' is none", printable(text, 40)));
    const auto number = json.get<std::uint64_t>();
    if (number > kMostTokenNumber)
        return dp::fail(fmt::format("it has token {}, {}", number, kTooManyTokens));
    return static_cast<Token>(number);
}

Try<std::map<Token, std::string>> special_tokens(const HfJson& json) {
    std::map<Token, std::string> special;
    const HfJson& added = part_of(json, "added_tokens");
    if (!added.is_null() && !added.is_array()) return dp::fail("its added_tokens are no list");
    for (const HfJson& one : added) {
        const HfJson& content = part_of(one, "content");
        if (!content.is_string()) return dp::fail("an added token has no content");
        const auto& text = content.get_ref<const std::string&>();
        if (part_of(one, "special") != true)
            return dp::fail(fmt::format("its added token '{}' is not special", printable(text, 40)));
        const Token number = DP_TRY(number_of(part_of(one, "id"), text));
        special.emplace(number, text);
    }
    return special;
}

Try<std::vector<std::string>> texts_of(const HfJson& model, std::map<Token, std::string>& special) {
    const HfJson& vocabulary = part_of(model, "vocab");
    if (!vocabulary.is_object()) return dp::fail("its model has no vocab");
    std::vector<std::string> texts;
    for (const auto& [printed, json] : vocabulary.items()) {
        const Token number = DP_TRY(number_of(json, printed));
        if (special.contains(number)) continue;
        auto text = BytePairs::bytes_of(printed);
        if (!text || text->empty()) {  // no bytes are written so, so no text has it
            special.emplace(number, printed);
            continue;
        }
        if (texts.size() <= number) texts.resize(std::size_t{number} + 1);
        if (!texts[number].empty())
            return dp::fail(fmt::format("two of its tokens have the number {}", number));
        texts[number] = *std::move(text);
    }
    return texts;
}

// "a b", or ["a", "b"] as newer versions write it.
std::optional<std::pair<std::string, std::string>> halves_of(const HfJson& merge) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0];
        right = merge[1];
    } else if (merge.is_string()) {
        const auto& both = merge.get_ref<const std::string&>();
        const auto blank = std::min(both.find(' '), both.size());
        left = both.substr(0, blank);
        right = both.substr(std::min(blank + 1, both.size()));
    }
    const auto one = BytePairs::bytes_of(left), other = BytePairs::bytes_of(right);
    if (!one || !other || one->empty() || other->empty()) return std::nullopt;
    return std::pair(*one, *other);
}

// An end of a text that is a word like others is special from now on, as the library has it.
Try<Token> end_of_text_among(std::map<Token, std::string>& special, const HfJson& vocabulary,
                             const BesideTokenizer& beside) {
    for (const auto& [number, text] : special)
        if (beside.eos_token ? text == *beside.eos_token : number == beside.eos_token_id) return number;
    if (beside.eos_token) {
        const auto found = vocabulary.find(*beside.eos_token);
        if (found == vocabulary.end())
            return dp::fail(fmt::format("it lacks '{}', the eos_token of its {}",
                                        printable(*beside.eos_token, 40), beside.source));
        const Token number = DP_TRY(number_of(*found, *beside.eos_token));
        special.emplace(number, *beside.eos_token);
        return number;
    }
    if (beside.eos_token_id)
        return dp::fail(fmt::format("its special tokens lack {}, the eos_token_id of its {}",
                                    *beside.eos_token_id, beside.source));
    for (const std::string_view name : kEndsOfText)
        for (const auto& [number, text] : special)
            if (text == name) return number;
    return dp::fail(fmt::format("it lacks {}, which this trainer puts before each document", kEndOfText));
}

Try<BytePairParts> parts_of_json(std::string contents, const BesideTokenizer& beside) {
    const HfJson json = HfJson::parse(contents, nullptr, false);
    if (json.is_discarded()) return dp::fail("it is no JSON");
    DP_TRY(check_kind(json));
    const HfJson& model = part_of(json, "model");
    auto special = DP_TRY(special_tokens(json));
    const Token end_of_text = DP_TRY(end_of_text_among(special, part_of(model, "vocab"), beside));
    auto texts = DP_TRY(texts_of(model, special));
    auto pairs = DP_TRY(BytePairs::of_texts(std::move(texts)));
    const HfJson& merges = part_of(model, "merges");
    if (!merges.is_array()) return dp::fail("its model has no merges");
    for (std::size_t i = 0; i < merges.size(); ++i) {
        const auto halves = halves_of(merges[i]);
        if (!halves) return dp::fail(fmt::format("its merge {} is not of two tokens", i));
        DP_TRY(pairs.add_merge(halves->first, halves->second));
    }
    if (part_of(model, "ignore_merges") == true) pairs.take_whole_words();
    return BytePairParts{"huggingface",
                         std::move(pairs),
                         end_of_text,
                         std::move(special),
                         std::string(kTokenizerFile),
                         std::move(contents),
                         beside.tokenizer_config};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_hugging_face_tokenizer(std::string json, const std::string& source) {
    return make_hugging_face_tokenizer_beside(std::move(json), source, {});
}

Result<std::unique_ptr<Tokenizer>> make_hugging_face_tokenizer_beside(std::string json,
                                                                      const std::string& source,
                                                                      const BesideTokenizer& beside) {
    auto parts = parts_of_json(std::move(json), beside);
    if (!parts) return not_taken(source, parts.error().message);
    return make_byte_pair_tokenizer(*std::move(parts));
}

}  // namespace dp::trainer
