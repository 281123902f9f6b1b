// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::optional<T> all_of(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// The number that the text is; none (NaN) where it is another text or not finite.
double finite(std::string_view text) {
    const double value = all_of<double>(text).value_or(std::nan(""));
    return std::isfinite(value) ? value : std::nan("");
}

// `why`: of a number, what is wrong with it; "": nothing.
template <typename Why>
Format<double> number_format(Why why) {
    return {"X",
            [why](const std::string& text) -> Try<double> {
                const double value = finite(text);
                if (const std::string wrong = why(text, value); !wrong.empty())
                    return dp::fail(wrong);
                return value;
            },
            [](const double& value) { return fmt::format("{}", value); }};
}

std::string not_above_0(const std::string& text, const char* such_as) {
    return fmt::format("'{}' is not a number above 0, such as {}", text, such_as);
}

// "GiB", "G", "gb" or "": 0 where it is no unit.
double unit_of(std::string unit) {
    for (char& letter : unit) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (unit.ends_with("ib"))
        unit.resize(unit.size() - 2);
    else if (unit.ends_with('b'))
        unit.resize(unit.size() - 1);
    if (unit.empty()) return 1;
    const auto power = std::string_view("kmgtpe").find(unit);
    return unit.size() == 1 && power != std::string_view::npos
               ? std::pow(1024.0, static_cast<double>(power) + 1)
               : 0;
}

Format<fs::path> path_that(const char* type, bool (*is_good)(const fs::path&), const char* what) {
    return {type,
            [=](const std::string& text) -> Try<fs::path> {
                if (!is_good(text)) return dp::fail(fmt::format("{}: {}", text, what));
                return fs::path(text);
            },
            [](const fs::path& path) { return path.string(); }};
}

}  // namespace

Format<std::int64_t> whole(std::int64_t low, std::int64_t high) {
    return {"N",
            [=](const std::string& text) -> Try<std::int64_t> {
                const auto value = all_of<std::int64_t>(text);
                if (value && *value >= low && *value <= high) return *value;
                return dp::fail(
                    fmt::format("'{}' is not a whole number from {} to {}", text, low, high));
            },
            [](const std::int64_t& value) { return fmt::format("{}", value); }};
}

Format<double> number(double low, double high, const char* such_as) {
    return number_format([=](const std::string& text, double value) -> std::string {
        // As it is computed with, in 32 bits: 0.99999999 is 1 there.
        const bool is_below = value < high && static_cast<float>(value) < static_cast<float>(high);
        if (value >= low && is_below) return {};
        return fmt::format("'{}' is not a number from {} to below {}, such as {}", text, low, high, such_as);
    });
}

Format<double> positive(const char* such_as) {
    return number_format([=](const std::string& text, double value) {
        return value > 0 ? std::string() : not_above_0(text, such_as);
    });
}

Format<double> positive_in_32_bits(const char* such_as) {
    return number_format([=](const std::string& text, double value) -> std::string {
        if (!(value > 0)) return not_above_0(text, such_as);
        const auto computed = static_cast<float>(value);
        if (computed > 0 && std::isfinite(computed)) return {};
        return fmt::format("'{}' is {} in 32 bits, with which it is computed; give a number such as {}", text,
                           computed > 0 ? "infinite" : "0", such_as);
    });
}

Format<std::int64_t> size_in_bytes() {
    return {"SIZE",
            [](const std::string& text) -> Try<std::int64_t> {
                const auto digits = std::min(text.find_first_not_of("0123456789."), text.size());
                const auto space = std::min(text.find_first_not_of(' ', digits), text.size());
                const double bytes =
                    finite(std::string_view(text).substr(0, digits)) * unit_of(text.substr(space));
                if (bytes >= 1 && bytes < static_cast<double>(std::numeric_limits<std::int64_t>::max()))
                    return static_cast<std::int64_t>(bytes);
                return dp::fail(
                    fmt::format("'{}' is not a size above 0, such as 512MiB or 1.5G", text));
            },
            [](const std::int64_t& value) { return fmt::format("{}", value); }};
}

Format<fs::path> path(const char* type) {
    return path_that(
        type, [](const fs::path&) { return true; }, "");
}

Format<fs::path> existing_path(const char* type) {
    return path_that(
        type,
        [](const fs::path& path) {
            std::error_code ignored;
            return fs::exists(path, ignored);
        },
        "not there");
}

Format<fs::path> existing_directory(const char* type) {
    return path_that(
        type,
        [](const fs::path& path) {
            std::error_code ignored;
            return fs::is_directory(path, ignored);
        },
        "no such directory");
}

Format<std::string> any_text(const char* type) {
    return {type, [](const std::string& text) { return Try<std::string>(text); },
            [](const std::string& text) { return text; }};
}

Format<std::string> one_of(const std::vector<std::string>& words) {
    std::vector<std::pair<std::string, std::string>> same;
    for (const auto& word : words) same.emplace_back(word, word);
    return one_of<std::string>(std::move(same));
}

Format<std::int64_t> one_of(const std::vector<std::int64_t>& numbers) {
    std::vector<std::pair<std::string, std::int64_t>> words;
    for (const auto number : numbers) words.emplace_back(std::to_string(number), number);
    return one_of<std::int64_t>(std::move(words));
}

}  // namespace dp::trainer
