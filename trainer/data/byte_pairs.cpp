// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/byte_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <numeric>
#include <optional>
#include <queue>
#include <span>

#include "base/text.hpp"

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

// Ordered by the merge's place in the table, and then by the place in the word.
struct Merge {
    std::uint32_t rank;
    std::ptrdiff_t left;  // the place of the left one
    Token token, left_token, right_token;
    auto operator<=>(const Merge&) const = default;
};

}  // namespace

Result<BytePairs> BytePairs::read(std::string_view merges, const std::string& source) {
    const auto bytes = ordered_bytes();
    BytePairs pairs;
    const auto add = [&](const std::string& text) {
        const auto token = static_cast<Token>(pairs.texts_.size());
        pairs.tokens_.emplace(text, token);
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
        if (!left || !right || !pairs.tokens_.contains(*left) || !pairs.tokens_.contains(*right) ||
            pairs.size() >= 0xFFFF)
            return fail(Fault::usage,
                        "{}: line {} does not merge two known tokens; make the data again with "
                        "`trainer prepare`",
                        source, number);
        const std::uint32_t both = pair(pairs.tokens_[*left], pairs.tokens_[*right]);
        const Token token = add(*left + *right);
        pairs.merges_.emplace(both, Made{token, token});
    }
    return pairs;
}

Try<BytePairs> BytePairs::of_texts(std::vector<std::string> texts) {
    BytePairs pairs;
    pairs.texts_ = std::move(texts);
    for (std::size_t token = 0; token < pairs.texts_.size(); ++token) {
        const std::string& text = pairs.texts_[token];
        if (text.empty()) continue;
        const auto [same, is_new] = pairs.tokens_.emplace(text, static_cast<Token>(token));
        if (!is_new)
            return dp::fail(fmt::format("its tokens {} and {} are the same text", same->second, token));
        if (text.size() == 1)
            pairs.tokens_of_bytes_[static_cast<unsigned char>(text[0])] = static_cast<Token>(token);
    }
    for (int byte = 0; byte < 256; ++byte)
        if (!pairs.tokens_.contains(std::string(1, static_cast<char>(byte))))
            return dp::fail(
                fmt::format("it lacks a token for the byte 0x{:02x}, which a text may have", byte));
    return pairs;
}

Try<void> BytePairs::add_merge(const std::string& left, const std::string& right) {
    const auto one = tokens_.find(left), other = tokens_.find(right), both = tokens_.find(left + right);
    for (const auto& [found, text] :
         {std::pair(one, left), std::pair(other, right), std::pair(both, left + right)})
        if (found == tokens_.end())
            return dp::fail(fmt::format("it merges '{}' and '{}', but lacks the token '{}'",
                                        printable(left, 40), printable(right, 40), printable(text, 80)));
    merges_.insert_or_assign(pair(one->second, other->second), Made{next_rank_++, both->second});
    return {};
}

void BytePairs::merge_by_number() {
    for (const auto& [text, token] : tokens_) {
        for (std::size_t cut = 1; cut < text.size(); ++cut) {
            const auto left = tokens_.find(text.substr(0, cut)), right = tokens_.find(text.substr(cut));
            if (left != tokens_.end() && right != tokens_.end())
                merges_[pair(left->second, right->second)] = {token, token};
        }
    }
}

std::optional<std::string> BytePairs::bytes_of(std::string_view printable_text) {
    static const auto ordered = ordered_bytes();
    return decode(printable_text, ordered);
}

std::string BytePairs::merge_lines() const {
    std::string lines = "#version: 0.2\n";
    for (std::size_t token = 0; token < texts_.size(); ++token) {
        if (texts_[token].size() < 2) continue;
        std::vector<Token> halves;
        merge(texts_[token], static_cast<std::uint32_t>(token), halves);
        if (halves.size() == 2)
            lines += printable_text_of(halves[0]) + " " + printable_text_of(halves[1]) + "\n";
    }
    return lines;
}

std::string BytePairs::printable_text_of(Token token) const {
    const auto ordered = ordered_bytes();
    std::string text;
    for (const char byte : text_of(token)) text += encode_byte(static_cast<std::uint8_t>(byte), ordered);
    return text;
}

void BytePairs::merge(std::string_view word, std::uint32_t before, std::vector<Token>& tokens) const {
    if (takes_whole_words_ && before == kAll) {
        if (const auto whole = tokens_.find(std::string(word)); whole != tokens_.end()) {
            tokens.push_back(whole->second);
            return;
        }
    }
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
        if (found != merges_.end() && found->second.rank < before)
            possible.push({found->second.rank, left, found->second.token, left_token, right_token});
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
