// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

constexpr const char* kDescription = "tokenizer.json";
constexpr std::uint64_t kMostTokens = std::uint64_t{std::numeric_limits<Token>::max()} + 1;

class ByteTokenizer final : public Tokenizer {
 public:
    ByteTokenizer() { std::iota(bytes_.begin(), bytes_.end(), '\0'); }

    std::string_view name() const override { return "bytes"; }
    std::int64_t vocabulary() const override { return 257; }
    Result<void> encode(std::string_view text, std::vector<Token>& tokens) override {
        for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
        return {};
    }

 protected:
    std::string_view text_of(Token token) const override { return {&bytes_[token], 1}; }

 private:
    std::array<char, 256> bytes_;
};

// What tokenizer.json says of `key`; null if it says nothing.
nlohmann::json said_in(const std::string& text, const char* key) {
    const auto description = nlohmann::json::parse(text, nullptr, false);
    return description.is_object() ? description.value(key, nlohmann::json()) : nlohmann::json();
}

}  // namespace

std::string Tokenizer::decode(std::span<const Token> tokens) const {
    std::string text;
    for (const Token token : tokens) {
        if (token < end_of_text())
            text += text_of(token);
        else if (token == end_of_text())
            text += kEndOfText;
    }
    return text;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
    return std::make_unique<ByteTokenizer>();
}

Result<void> save_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory) {
    if (!tokenizer.merges().empty()) DP_TRY(write_file(directory / kMergesFile, tokenizer.merges()));
    const nlohmann::ordered_json description{{"tokenizer", tokenizer.name()},
                                             {"vocabulary", tokenizer.vocabulary()},
                                             {"end_of_text", tokenizer.end_of_text()}};
    return write_file(directory / kDescription, description.dump() + "\n");
}

std::optional<std::int64_t> vocabulary_of(const std::filesystem::path& directory) {
    const auto text = read_file(directory / kDescription);
    if (!text) return std::nullopt;
    const auto said = said_in(*text, "vocabulary");
    if (!said.is_number_unsigned() || said.get<std::uint64_t>() > kMostTokens) return std::nullopt;
    return said.get<std::int64_t>();
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::filesystem::path& directory) {
    const auto file = directory / kDescription;
    const auto text = DP_TRY(read_file(file));
    const auto name = said_in(text, "tokenizer"), vocabulary = said_in(text, "vocabulary");
    if (name == "bytes") return make_byte_tokenizer();
    if (name != "gpt2")
        return fail(Fault::usage,
                    "{}: unknown tokenizer (this trainer has gpt2 and bytes); "
                    "make the data again with `trainer prepare`",
                    file.string());
    const auto merges_file = directory / kMergesFile;
    auto merges = DP_TRY(read_file(merges_file));
    auto tokenizer = make_gpt2_tokenizer(std::move(merges), merges_file.string());
    if (tokenizer && vocabulary != (*tokenizer)->vocabulary())
        return fail(Fault::usage,
                    "{}: has {} tokens, but {} says {}; make the data again with "
                    "`trainer prepare`",
                    merges_file.string(), (*tokenizer)->vocabulary(), kDescription, vocabulary.dump());
    return tokenizer;
}

}  // namespace dp::trainer
