// SPDX-License-Identifier: Apache-2.0
//
// Small text helpers without iostreams or locales (the plugin is loaded into every srun and must stay light).
#pragma once

#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dp {

// A decimal number and nothing else, or nullopt.
template <typename Integer>
std::optional<Integer> parse_number(std::string_view text) {
    Integer value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

// Splits at each separator; an empty text has no parts.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    if (text.empty()) return parts;
    for (;;) {
        size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

// Numbers as Slurm, the kernel and people list them, "0,2-5". One part: "5" or "2-5", first and last as
// written; nullopt if it is neither.
template <typename Number>
std::optional<std::pair<Number, Number>> parse_range(std::string_view part) {
    const size_t dash = part.find('-');
    const auto first = parse_number<Number>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number<Number>(part.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    return std::pair(*first, *last);
}

// All numbers of a list, as written; nullopt if a part is not a range, runs backwards or exceeds `most`, or
// if there are more than that.
template <typename Number>
std::optional<std::vector<Number>> parse_ranges(std::string_view list, Number most) {
    std::vector<Number> numbers;
    for (std::string_view part : split(list, ',')) {
        const auto range = parse_range<Number>(part);
        if (!range || range->second < range->first || range->second > most) return std::nullopt;
        for (Number n = range->first; n <= range->second; ++n) numbers.push_back(n);
        if (numbers.size() > size_t{most} + 1) return std::nullopt;
    }
    return numbers;
}

// The parts with the separator between them.
template <typename Parts>
std::string join(const Parts& parts, std::string_view separator = ",") {
    std::string text;
    for (const auto& part : parts) text.append(part).append(separator);
    if (!text.empty()) text.resize(text.size() - separator.size());
    return text;
}

// Plain text for one log line: replaces everything except printable ASCII by '?', and cuts long texts.
inline std::string printable(std::string_view text, size_t limit = 200) {
    std::string out(text.substr(0, limit));
    for (char& c : out)
        if (c < 0x20 || c > 0x7e) c = '?';
    if (text.size() > limit) out += "...";
    return out;
}

// "1 node", "2 nodes".
inline std::string plural(size_t count, std::string_view noun) {
    return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

// "300 ms", "20 s".
inline std::string words(std::chrono::milliseconds time) {
    return time < std::chrono::seconds(1) ? std::to_string(time.count()) + " ms"
                                          : std::to_string(time.count() / 1000) + " s";
}

}  // namespace dp
