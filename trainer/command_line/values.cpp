// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/values.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// The number that the text is; NaN where it is another text or not finite.
double finite(std::string_view text) {
    const double value = parse_number<double>(text).value_or(NAN);
    return std::isfinite(value) ? value : NAN;
}

// `why`: of a number, what is wrong with it; "": nothing.
template <typename Why>
Format<double> number_format(Why why) {
    return {"X", [why](const std::string& text) -> Try<double> {
                const double value = finite(text);
                if (const std::string wrong = why(text, value); !wrong.empty()) return dp::fail(wrong);
                return value;
            }};
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

}  // namespace

Format<std::int64_t> whole(std::int64_t low, std::int64_t high) {
    return {"N", [=](const std::string& text) -> Try<std::int64_t> {
                const auto value = parse_number<std::int64_t>(text);
                if (value && *value >= low && *value <= high) return *value;
                return dp::fail(fmt::format("'{}' is not a whole number from {} to {}", text, low, high));
            }};
}

Format<double> number(double low, double high, const char* such_as) {
    return number_format([=](const std::string& text, double value) -> std::string {
        // As it is computed with, in 32 bits: 0.99999999 is 1 there.
        const bool is_below = value < high && static_cast<float>(value) < static_cast<float>(high);
        if (value >= low && is_below) return {};
        return fmt::format("'{}' is not a number from {} to below {}, such as {}", text, low, high, such_as);
    });
}

Format<double> positive(const char* such_as, Bits bits) {
    return number_format([=](const std::string& text, double value) -> std::string {
        if (!(value > 0)) return fmt::format("'{}' is not a number above 0, such as {}", text, such_as);
        const auto in_32_bits = static_cast<float>(value);
        if (bits == Bits::any || (in_32_bits > 0 && std::isfinite(in_32_bits))) return {};
        return fmt::format("'{}' is {} as a 32-bit float; give a number such as {}", text,
                           in_32_bits > 0 ? "infinite" : "0", such_as);
    });
}

Format<std::int64_t> size_in_bytes() {
    return {"SIZE", [](const std::string& text) -> Try<std::int64_t> {
                const auto digits = std::min(text.find_first_not_of("0123456789."), text.size());
                const auto space = std::min(text.find_first_not_of(' ', digits), text.size());
                const double bytes = finite(text.substr(0, digits)) * unit_of(text.substr(space));
                if (bytes >= 1 && bytes < static_cast<double>(std::numeric_limits<std::int64_t>::max()))
                    return static_cast<std::int64_t>(bytes);
                return dp::fail(fmt::format("'{}' is not a size above 0, such as 512MiB or 1.5G", text));
            }};
}

Format<fs::path> path(const char* type, PathOf what) {
    return {type, [what](const std::string& text) -> Try<fs::path> {
                std::error_code ignored;
                if (what == PathOf::existing && !fs::exists(text, ignored))
                    return dp::fail(fmt::format("{}: not there", text));
                if (what == PathOf::existing_directory && !fs::is_directory(text, ignored))
                    return dp::fail(fmt::format("{}: no such directory", text));
                return fs::path(text);
            }};
}

Format<std::string> any_text(const char* type) {
    return {type, [](const std::string& text) { return Try<std::string>(text); }};
}

Format<std::vector<std::string>> words(const char* type) {
    const auto parse = [](const std::string& given) -> Try<std::vector<std::string>> {
        std::vector<std::string> all;
        for (std::size_t from = 0, end = 0; end < given.size() || from == 0; from = end + 1) {
            end = std::min(given.find(',', from), given.size());
            if (end == from)
                return dp::fail(fmt::format("'{}' is not words with a comma between two of them", given));
            all.push_back(given.substr(from, end - from));
        }
        return all;
    };
    const auto text = [](const std::vector<std::string>& all) {
        return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ","));
    };
    return {type, parse, text};
}

}  // namespace dp::trainer
