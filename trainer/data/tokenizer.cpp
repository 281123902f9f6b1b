// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trainer/base/files.hpp"
#include "trainer/data/tokenizer_config.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDescription = kTokenizerFile;
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

Result<std::string> read_tokenizer_file(const fs::path& file) {
    const auto opened = open_sized(file);
    if (opened && opened->bytes > kLargestTokenizerFile)
        return fail(Fault::usage, "{}: {} bytes, and no tokenizer that this trainer takes has more than {}",
                    file.string(), opened->bytes, kLargestTokenizerFile);
    return read_file(file);
}

// Of the files that may be there. tokenizer_config.json is the tokenizer's own, generation_config.json the model's.
Result<BesideTokenizer> beside(const fs::path& file) {
    BesideTokenizer said;
    std::error_code ignored;
    const auto wrong = [](const fs::path& where) {
        return [=](const Failure& error) {
            return Error{Fault::usage,
                         fmt::format("{}: {}; correct it, or remove it", where.string(), error.message)};
        };
    };
    if (const fs::path config = file.parent_path() / kTokenizerConfig; fs::exists(config, ignored)) {
        said.tokenizer_config = DP_TRY(read_tokenizer_file(config));
        said.eos_token = DP_TRY(eos_token_in(said.tokenizer_config).map_error(wrong(config)));
        said.source = kTokenizerConfig;
    }
    const fs::path generation = file.parent_path() / kGenerationConfig;
    if (said.eos_token || !fs::exists(generation, ignored)) return said;
    const std::string text = DP_TRY(read_tokenizer_file(generation));
    said.eos_token_id = DP_TRY(eos_token_id_in(text).map_error(wrong(generation)));
    said.source = kGenerationConfig;
    return said;
}

MakeTokenizer* maker_for(const fs::path& file) {
    if (file.extension() == ".json") return make_hugging_face_tokenizer;
    if (file.extension() == ".tiktoken") return make_tiktoken_tokenizer;
    if (file.extension() == ".bpe" || file.extension() == ".txt") return make_gpt2_tokenizer;
    return nullptr;
}

}  // namespace

std::string Tokenizer::decode(std::span<const Token> tokens) const {
    std::string text;
    for (const Token token : tokens)
        if (token < vocabulary()) text += token == end_of_text() ? kEndOfText : text_of(token);
    return text;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
    return std::make_unique<ByteTokenizer>();
}

Result<void> save_tokenizer(const Tokenizer& tokenizer, const fs::path& directory) {
    const TokenizerFile file = tokenizer.file();
    if (!file.name.empty()) DP_TRY(write_file(directory / file.name, file.contents));
    // Beside the tokens nothing else says which token ends a text.
    if (file.name == kDescription)
        return write_file(directory / kTokenizerConfig, tokenizer_config_text(std::string(tokenizer.config()),
                                                                              tokenizer.end_of_text_name()));
    const nlohmann::ordered_json description{{"tokenizer", tokenizer.name()},
                                             {"vocabulary", tokenizer.vocabulary()},
                                             {"end_of_text", tokenizer.end_of_text()}};
    return write_file(directory / kDescription, description.dump() + "\n");
}

std::optional<fs::path> tokenizer_file_in(const fs::path& where) {
    std::error_code ignored;
    const fs::path directory = fs::is_directory(where, ignored) ? where
                               : where.has_parent_path()        ? where.parent_path()
                                                                : fs::path(".");
    if (fs::exists(directory / kTokenizerFile, ignored)) {
        // What this trainer notes itself is no tokenizer. Of another that cannot be read, whoever opens it says why.
        const auto text = read_tokenizer_file(directory / kTokenizerFile);
        if (!text || !said_in(*text, "tokenizer").is_string()) return directory / kTokenizerFile;
    }
    std::vector<fs::path> ranks;
    for (auto& file : entries_of(directory))
        if (file.extension() == ".tiktoken") ranks.push_back(std::move(file));
    if (!ranks.empty()) return *std::min_element(ranks.begin(), ranks.end());
    for (const std::string_view name : {kMergesFile, std::string_view("merges.txt")})
        if (fs::exists(directory / name, ignored)) return directory / name;
    return std::nullopt;
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer_file(const fs::path& where) {
    std::error_code ignored;
    if (fs::is_directory(where, ignored)) return open_tokenizer(where);
    MakeTokenizer* const make = maker_for(where);
    if (make == nullptr)
        return fail(
            Fault::usage,
            "{}: no tokenizer that this trainer reads; give Hugging Face's tokenizer.json, tiktoken's "
            "*.tiktoken, or GPT-2's vocab.bpe or merges.txt",
            where.string());
    auto contents = DP_TRY(read_tokenizer_file(where));
    if (make == make_hugging_face_tokenizer) {
        const auto said = DP_TRY(beside(where));
        return make_hugging_face_tokenizer_beside(std::move(contents), where.string(), said);
    }
    return make(std::move(contents), where.string());
}

std::optional<std::int64_t> vocabulary_of(const fs::path& where) {
    const auto text = read_tokenizer_file(where / kDescription);
    const auto said = text ? said_in(*text, "vocabulary") : nlohmann::json();
    if (said.is_number_unsigned() && said.get<std::uint64_t>() <= kMostTokens)
        return said.get<std::int64_t>();
    const auto file = tokenizer_file_in(where);
    if (!file) return std::nullopt;
    const auto tokenizer = open_tokenizer_file(*file);
    return tokenizer ? std::optional((*tokenizer)->vocabulary()) : std::nullopt;
}

std::optional<std::int64_t> document_begins_in(const fs::path& where) {
    const auto text = read_tokenizer_file(where / kDescription);
    const auto said = text ? said_in(*text, "end_of_text") : nlohmann::json();
    if (said.is_number_unsigned() && said.get<std::uint64_t>() < kMostTokens) return said.get<std::int64_t>();
    const auto file = tokenizer_file_in(where);
    if (!file) return std::nullopt;
    const auto tokenizer = open_tokenizer_file(*file);
    return tokenizer ? std::optional<std::int64_t>((*tokenizer)->end_of_text()) : std::nullopt;
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const fs::path& directory) {
    const auto description = directory / kDescription;
    const auto text = read_tokenizer_file(description);
    if (const auto file = tokenizer_file_in(directory); file && (!text || file->filename() == kDescription))
        return open_tokenizer_file(*file);
    if (std::error_code ignored; !text && !fs::exists(description, ignored))
        return fail(
            Fault::usage,
            "{}: no tokenizer there (tokenizer.json, *.tiktoken, vocab.bpe or merges.txt); give the "
            "directory of the tokens, in which a training or `trainer prepare` keeps it, or that of the "
            "tokenizer",
            directory.string());
    if (!text) return tl::unexpected(text.error());
    const auto name = said_in(*text, "tokenizer"), vocabulary = said_in(*text, "vocabulary");
    if (name == "bytes") return make_byte_tokenizer();
    if (name != "gpt2" && name != "tiktoken")
        return fail(Fault::usage,
                    "{}: unknown tokenizer (this trainer has gpt2, tiktoken, bytes, and Hugging Face's BPE); "
                    "make the data again with `trainer prepare`",
                    description.string());
    const auto file = directory / (name == "gpt2" ? kMergesFile : kRanksFile);
    auto tokenizer = open_tokenizer_file(file);
    if (tokenizer && vocabulary != (*tokenizer)->vocabulary())
        return fail(Fault::usage,
                    "{}: has {} tokens, but {} says {}; make the data again with "
                    "`trainer prepare`",
                    file.string(), (*tokenizer)->vocabulary(), kDescription, vocabulary.dump());
    return tokenizer;
}

}  // namespace dp::trainer
