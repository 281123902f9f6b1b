// SPDX-License-Identifier: Apache-2.0
//
// tiktoken's files of ranks (github.com/openai/tiktoken, tiktoken/load.py), such as r50k_base.tiktoken: in each line the bytes of a
// token in base64, a blank, and its number. Of two neighbours, those are merged first that make the token with the least number
// (src/lib.rs), and a word that is a token is that token. The file has no special tokens: the end of a text is the first number
// that no line has, as it is of r50k_base (50256, after the last) and p50k_base (50256, between others).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.hpp"
#include "trainer/data/byte_pair_tokenizer.hpp"

namespace dp::trainer {
namespace {

// RFC 4648, with padding and nothing beside it.
std::optional<std::string> base64_decoded(std::string_view text) {
    constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    std::string bytes;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto digit = i + padding < text.size() ? kAlphabet.find(text[i]) : 0;
        if (digit == std::string_view::npos) return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        if (i % 4 != 3) continue;
        for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xFF);
        bits = 0;
    }
    bytes.resize(bytes.size() - padding);
    return bytes;
}

// Bytes: all ways to cut one are tried. Those of published files have 128 at most.
constexpr std::size_t kLongestToken = 256;

Try<std::vector<std::string>> read_ranks(std::string_view lines) {
    std::vector<std::string> texts;
    for (int number = 1; !lines.empty(); ++number) {
        const auto end = std::min(lines.find('\n'), lines.size());
        std::string_view line = lines.substr(0, end);
        lines.remove_prefix(std::min(end + 1, lines.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty()) continue;
        const auto blank = std::min(line.find(' '), line.size());
        auto text = base64_decoded(line.substr(0, blank));
        const auto rank = parse_number<std::uint64_t>(line.substr(std::min(blank + 1, line.size())));
        if (!text || !rank)
            return dp::fail(fmt::format("line {} is not a token in base64, a blank and its number", number));
        if (text->size() > kLongestToken)
            return dp::fail(fmt::format("line {} has a token of {} bytes; at most {} are taken", number,
                                        text->size(), kLongestToken));
        if (*rank > kMostTokenNumber)
            return dp::fail(fmt::format("line {} has token {}, {}", number, *rank, kTooManyTokens));
        if (texts.size() <= *rank) texts.resize(static_cast<std::size_t>(*rank) + 1);
        if (!texts[*rank].empty()) return dp::fail(fmt::format("line {} has token {} again", number, *rank));
        texts[*rank] = *std::move(text);
    }
    return texts;
}

Try<BytePairParts> parts_of_ranks(std::string ranks) {
    auto texts = DP_TRY(read_ranks(ranks));
    const auto end_of_text = static_cast<std::size_t>(std::ranges::find(texts, "") - texts.begin());
    if (end_of_text > kMostTokenNumber)
        return dp::fail(
            fmt::format("it has {} tokens and one for the end of a text, {}", texts.size(), kTooManyTokens));
    auto pairs = DP_TRY(BytePairs::of_texts(std::move(texts)));
    pairs.merge_by_number();
    pairs.take_whole_words();
    return BytePairParts{"tiktoken", std::move(pairs),        static_cast<Token>(end_of_text),
                         {},         std::string(kRanksFile), std::move(ranks)};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tiktoken_tokenizer(std::string ranks, const std::string& source) {
    auto parts = parts_of_ranks(std::move(ranks));
    if (!parts) return not_taken(source, parts.error().message);
    return make_byte_pair_tokenizer(*std::move(parts));
}

}  // namespace dp::trainer
