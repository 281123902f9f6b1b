// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/byte_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <numeric>
#include <optional>
#include <queue>
#include <span>

namespace dp::trainer {
namespace {

// vocab.bpe writes Latin-1's printable bytes as themselves, and the others as characters from U+0100 on.
bool is_printable(std::uint32_t byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::size_t kPrintable = 188;

// The bytes in the order of GPT-2's tokens: first the printable ones.
std::vector<std::uint8_t> ordered_bytes() {
    std::vector<std::uint8_t> bytes(256);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
    std::stable_partition(bytes.begin(), bytes.end(), is_printable);
    return bytes;
}

// The bytes of a token of vocab.bpe. Its characters take one or two bytes in UTF-8.
std::optional<std::string> decode(std::string_view token, std::span<const std::uint8_t> ordered) {
    const auto others = ordered.subspan(kPrintable);
    std::string decoded;
    for (std::size_t i = 0; i < token.size(); ++i) {
        std::uint32_t character = static_cast<unsigned char>(token[i]);
        if (character >= 0x80 && i + 1 < token.size())
            character = (character & 0x1Fu) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3Fu);
        if (is_printable(character))
            decoded += static_cast<char>(character);
        else if (character >= 0x100 && character - 0x100 < others.size())
            decoded += static_cast<char>(others[character - 0x100]);
        else
            return std::nullopt;
    }
    return decoded;
}

// The other way.
std::string encode_byte(std::uint8_t byte, std::span<const std::uint8_t> ordered) {
    std::uint32_t character = byte;
    if (!is_printable(byte)) {
        const auto others = ordered.subspan(kPrintable);
        character = 0x100 + static_cast<std::uint32_t>(std::ranges::find(others, byte) - others.begin());
    }
    if (character < 0x80) return {static_cast<char>(character)};
    return {static_cast<char>(0xC0u | character >> 6), static_cast<char>(0x80u | (character & 0x3Fu))};
}

// A token of the word being merged, in a linked list within an array.
struct Part {
    Token token;
    std::ptrdiff_t before, after;  // its neighbours' places; -1: none
    bool gone = false;             // merged into the one before
};

// Ordered by the token, whose number is also its merge's position in the table, and then by the place.
struct Merge {
    Token token;
    std::ptrdiff_t left;  // the place of the left one
    Token left_token, right_token;
    auto operator<=>(const Merge&) const = default;
};

}  // namespace

Result<BytePairs> BytePairs::read(std::string_view merges, const std::string& source) {
    const auto bytes = ordered_bytes();
    BytePairs pairs;
    std::unordered_map<std::string, Token> tokens;
    const auto add = [&](const std::string& text) {
        const auto token = static_cast<Token>(pairs.texts_.size());
        tokens.emplace(text, token);
        pairs.texts_.push_back(text);
        return token;
    };
    for (const std::uint8_t byte : bytes)
        pairs.tokens_of_bytes_[byte] = add(std::string(1, static_cast<char>(byte)));

    for (int number = 1; !merges.empty(); ++number) {
        const auto end = std::min(merges.find('\n'), merges.size());
        const std::string_view line = merges.substr(0, end);
        merges.remove_prefix(std::min(end + 1, merges.size()));
        if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
        const auto blank = std::min(line.find(' '), line.size());
        const auto left = decode(line.substr(0, blank), bytes);
        const auto right = decode(line.substr(std::min(blank + 1, line.size())), bytes);
        // Tokens have 16 bits, and the one after the last merge is the end of a text.
        if (!left || !right || !tokens.contains(*left) || !tokens.contains(*right) || pairs.size() >= 0xFFFF)
            return fail(Fault::usage,
                        "{}: line {} does not merge two known tokens; make the data again with "
                        "`trainer prepare`",
                        source, number);
        const std::uint32_t both = pair(tokens[*left], tokens[*right]);
        pairs.merges_.emplace(both, add(*left + *right));
    }
    return pairs;
}

std::string BytePairs::printable_text_of(Token token) const {
    const auto ordered = ordered_bytes();
    std::string text;
    for (const char byte : text_of(token)) text += encode_byte(static_cast<std::uint8_t>(byte), ordered);
    return text;
}

void BytePairs::merge(std::string_view word, std::vector<Token>& tokens) const {
    const auto size = static_cast<std::ptrdiff_t>(word.size());
    std::vector<Part> parts;
    parts.reserve(word.size());
    for (const char byte : word) {
        const auto place = static_cast<std::ptrdiff_t>(parts.size());
        parts.push_back({tokens_of_bytes_[static_cast<unsigned char>(byte)], place - 1,
                         place + 1 < size ? place + 1 : -1});
    }
    const auto at = [&](std::ptrdiff_t place) -> Part& { return parts[static_cast<std::size_t>(place)]; };

    std::priority_queue<Merge, std::vector<Merge>, std::greater<>> possible;
    const auto consider = [&](std::ptrdiff_t left) {
        if (left < 0 || at(left).after < 0) return;
        const Token left_token = at(left).token, right_token = at(at(left).after).token;
        const auto found = merges_.find(pair(left_token, right_token));
        if (found != merges_.end()) possible.push({found->second, left, left_token, right_token});
    };
    for (std::ptrdiff_t place = 0; place < size; ++place) consider(place);
    while (!possible.empty()) {
        const Merge best = possible.top();
        possible.pop();
        Part& left = at(best.left);
        // The merge may be outdated: one of the two may have been merged with another token.
        if (left.gone || left.token != best.left_token || left.after < 0 ||
            at(left.after).token != best.right_token)
            continue;
        Part& right = at(left.after);
        right.gone = true;
        left.token = best.token;
        left.after = right.after;
        if (left.after >= 0) at(left.after).before = best.left;
        consider(left.before);
        consider(best.left);
    }
    for (const Part& part : parts)
        if (!part.gone) tokens.push_back(part.token);
}

}  // namespace dp::trainer
