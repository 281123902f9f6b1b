// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's byte-pair encoding (Radford et al. 2019): a text is split into words (gpt2_words.cpp), and the
// bytes of each word are merged (byte_pairs.cpp). tokenizer.hpp declares it.
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "trainer/data/byte_pairs.hpp"
#include "trainer/data/gpt2_words.hpp"
#include "trainer/data/tokenizer.hpp"

namespace dp::trainer {
namespace {

// Most words of a text have been seen before. Longer ones are rare and would only take memory.
constexpr std::size_t kLongestKnown = 64;
constexpr std::size_t kMostKnown = std::size_t{1} << 20;

class Gpt2Tokenizer final : public Tokenizer {
 public:
    Gpt2Tokenizer(std::string merges, BytePairs pairs)
        : merges_(std::move(merges)), pairs_(std::move(pairs)) {}

    std::string_view name() const override { return "gpt2"; }
    std::int64_t vocabulary() const override { return pairs_.size() + 1; }
    Result<void> encode(std::string_view text, std::vector<Token>& tokens) override {
        return split_words(text, [&](std::string_view word) { encode_word(word, tokens); });
    }
    std::string_view merges() const override { return merges_; }
    std::string vocabulary_json() const override {
        nlohmann::json tokens;
        for (std::int64_t token = 0; token < pairs_.size(); ++token)
            tokens[pairs_.printable_text_of(static_cast<Token>(token))] = token;
        tokens[std::string(kEndOfText)] = end_of_text();
        return tokens.dump() + "\n";
    }

 protected:
    std::string_view text_of(Token token) const override { return pairs_.text_of(token); }

 private:
    // Allows looking up strings by string_view.
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };

    std::string merges_;
    BytePairs pairs_;
    std::unordered_map<std::string, std::vector<Token>, Hash, std::equal_to<>> known_;

    void encode_word(std::string_view word, std::vector<Token>& tokens) {
        if (const auto found = known_.find(word); found != known_.end()) {
            tokens.insert(tokens.end(), found->second.begin(), found->second.end());
            return;
        }
        const auto first = static_cast<std::ptrdiff_t>(tokens.size());
        pairs_.merge(word, tokens);
        if (word.size() <= kLongestKnown && known_.size() < kMostKnown)
            known_.emplace(word, std::vector<Token>(tokens.begin() + first, tokens.end()));
    }
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_gpt2_tokenizer(std::string merges, const std::string& source) {
    auto pairs = DP_TRY(BytePairs::read(merges, source));
    return std::make_unique<Gpt2Tokenizer>(std::move(merges), std::move(pairs));
}

}  // namespace dp::trainer
