// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/byte_pair_tokenizer.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "trainer/data/gpt2_words.hpp"

namespace dp::trainer {
namespace {

// Most words of a text have been seen before. Longer ones are rare and would only take memory.
constexpr std::size_t kLongestKnown = 64;
constexpr std::size_t kMostKnown = std::size_t{1} << 20;

class BytePairTokenizer final : public Tokenizer {
 public:
    explicit BytePairTokenizer(BytePairParts parts) : parts_(std::move(parts)) {
        vocabulary_ = std::max<std::int64_t>(parts_.pairs.size(), std::int64_t{parts_.end_of_text} + 1);
        if (!parts_.special.empty())
            vocabulary_ =
                std::max<std::int64_t>(vocabulary_, std::int64_t{parts_.special.rbegin()->first} + 1);
    }

    std::string_view name() const override { return parts_.name; }
    std::int64_t vocabulary() const override { return vocabulary_; }
    Token end_of_text() const override { return parts_.end_of_text; }
    Result<void> encode(std::string_view text, std::vector<Token>& tokens) override {
        return split_words(text, [&](std::string_view word) { encode_word(word, tokens); });
    }
    TokenizerFile file() const override { return {parts_.file_name, parts_.file}; }
    std::string_view config() const override { return parts_.config; }
    std::string end_of_text_name() const override {
        const auto special = parts_.special.find(parts_.end_of_text);
        return special != parts_.special.end() ? special->second : Tokenizer::end_of_text_name();
    }
    std::string merges() const override {
        return parts_.file_name == kMergesFile ? parts_.file : parts_.pairs.merge_lines();
    }
    std::string vocabulary_json() const override {
        nlohmann::json tokens;
        for (std::int64_t token = 0; token < parts_.pairs.size(); ++token)
            if (const auto text = parts_.pairs.printable_text_of(static_cast<Token>(token)); !text.empty())
                tokens[text] = token;
        for (const auto& [token, text] : parts_.special) tokens[text] = token;
        tokens[std::string(kEndOfText)] = parts_.end_of_text;
        return tokens.dump() + "\n";
    }

 protected:
    std::string_view text_of(Token token) const override {
        if (const auto special = parts_.special.find(token); special != parts_.special.end())
            return special->second;
        return token < parts_.pairs.size() ? parts_.pairs.text_of(token) : std::string_view();
    }

 private:
    // Allows looking up strings by string_view.
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };

    BytePairParts parts_;
    std::int64_t vocabulary_;
    std::unordered_map<std::string, std::vector<Token>, Hash, std::equal_to<>> known_;

    void encode_word(std::string_view word, std::vector<Token>& tokens) {
        if (const auto found = known_.find(word); found != known_.end()) {
            tokens.insert(tokens.end(), found->second.begin(), found->second.end());
            return;
        }
        const auto first = static_cast<std::ptrdiff_t>(tokens.size());
        parts_.pairs.merge(word, tokens);
        if (word.size() <= kLongestKnown && known_.size() < kMostKnown)
            known_.emplace(word, std::vector<Token>(tokens.begin() + first, tokens.end()));
    }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_pair_tokenizer(BytePairParts parts) {
    return std::make_unique<BytePairTokenizer>(std::move(parts));
}

// GPT-2's own (Radford et al. 2019): the end of a text comes after the last merge.
Result<std::unique_ptr<Tokenizer>> make_gpt2_tokenizer(std::string merges, const std::string& source) {
    auto pairs = DP_TRY(BytePairs::read(merges, source));
    const auto end_of_text = static_cast<Token>(pairs.size());
    return make_byte_pair_tokenizer(
        {"gpt2", std::move(pairs), end_of_text, {}, std::string(kMergesFile), std::move(merges)});
}

}  // namespace dp::trainer
