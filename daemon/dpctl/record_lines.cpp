// SPDX-License-Identifier: Apache-2.0
#include "dpctl/record_lines.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "record/entries.hpp"

namespace dp {
namespace {

using Kind = RecordLine::Kind;

constexpr std::string_view kMark = "dpctl-collect ";
constexpr std::array<std::pair<Kind, std::string_view>, 4> kKinds{
    {{Kind::file, "file"}, {Kind::data, "data"}, {Kind::problem, "problem"}, {Kind::end, "end"}}};
// Each may become two, and the node's name is in the same line.
constexpr size_t kBytesOfALine = 360;
constexpr size_t kDigitsOfARun = 16;

std::string escaped(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
        if (c == '\\' || c == '\n') out += '\\';
        out += c == '\n' ? 'n' : c;
    }
    return out;
}

std::optional<std::string> unescaped(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool is_escaped = text[i] == '\\';
        if (is_escaped && ++i == text.size()) return std::nullopt;
        if (is_escaped && text[i] != '\\' && text[i] != 'n') return std::nullopt;
        out += is_escaped && text[i] == 'n' ? '\n' : text[i];
    }
    return out;
}

// The text up to the next space, which is taken away with it.
std::string_view take_word(std::string_view& text) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return word;
}

}  // namespace

std::string text_of(const RecordLine& line) {
    const auto kind = std::ranges::find(kKinds, line.kind, &std::pair<Kind, std::string_view>::first);
    const std::string front = std::string(kMark) + line.node + " " + std::string(kind->second) + " ";
    std::string_view rest = line.text;
    std::string lines;
    do {
        lines += front + escaped(rest.substr(0, kBytesOfALine)) + "\n";
        rest.remove_prefix(std::min(rest.size(), kBytesOfALine));
    } while (line.kind == Kind::data && !rest.empty());
    return lines;
}

std::optional<RecordLine> read_record_line(std::string_view line) {
    if (!line.starts_with(kMark)) return std::nullopt;
    line.remove_prefix(kMark.size());
    const std::string_view node = take_word(line);
    const auto kind = std::ranges::find(kKinds, take_word(line), &std::pair<Kind, std::string_view>::second);
    auto text = unescaped(line);
    if (node.empty() || kind == kKinds.end() || !text) return std::nullopt;
    return RecordLine{std::string(node), kind->first, std::move(*text)};
}

std::string text_of(const SentFile& file) {
    return file.name + " " + std::to_string(file.size);
}

std::optional<SentFile> read_sent_file(std::string_view text) {
    const std::string_view name = take_word(text);
    const auto size = parse_number<uint64_t>(text);
    if (name.empty() || !size) return std::nullopt;
    return SentFile{std::string(name), *size};
}

bool is_record_of(std::string_view name, uint32_t job, std::string_view node) {
    if (!name.ends_with(kRecordSuffix)) return false;
    name.remove_suffix(kRecordSuffix.size());
    const auto parts = split(name, '-');
    if (parts.size() < 3) return false;
    const std::string front = std::to_string(job) + ".";
    const std::string_view run = parts[1];
    if (!parts[0].starts_with(front)) return false;
    const std::string_view step = parts[0].substr(front.size());
    const size_t plus = step.find('+');  // of a heterogeneous step
    return parse_number<uint32_t>(step.substr(0, plus)) &&
           (plus == step.npos || parse_number<uint32_t>(step.substr(plus + 1))) &&
           run.size() == kDigitsOfARun &&
           run.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
           name.substr(parts[0].size() + run.size() + 2) == node && !node.empty() &&
           node.find('/') == std::string_view::npos;
}

}  // namespace dp
