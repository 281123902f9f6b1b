// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace dp::trainer {
namespace {

// The number that the text is; none (NaN) where it is another text or not finite.
double finite(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
    return is_number ? value : std::nan("");
}

}  // namespace

CLI::Validator whole(std::int64_t low, std::int64_t high) {
    return CLI::Validator(
        [=](std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc() && end == text.data() + text.size() && value >= low && value <= high)
                return {};
            return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
        },
        "");
}

CLI::Validator number(double low, double high, const char* such_as) {
    return CLI::Validator(
        [=](std::string& text) -> std::string {
            const double value = finite(text);
            // As it is computed with, in 32 bits: 0.99999999 is 1 there.
            const bool is_below = value < high && static_cast<float>(value) < static_cast<float>(high);
            if (value >= low && is_below) return {};
            return fmt::format("'{}' is not a number from {} to below {}, such as {}", text, low, high,
                               such_as);
        },
        "");
}

CLI::Validator positive() {
    return CLI::Validator(
        [](std::string& text) -> std::string {
            if (const double value = finite(text); value > 0) return {};
            return fmt::format("'{}' is not a number above 0, such as 0.001", text);
        },
        "");
}

CLI::Validator positive_in_32_bits() {
    return CLI::Validator(
        [](std::string& text) -> std::string {
            const double value = finite(text);
            if (!(value > 0)) return fmt::format("'{}' is not a number above 0, such as 0.001", text);
            const auto computed = static_cast<float>(value);
            if (computed > 0 && std::isfinite(computed)) return {};
            return fmt::format(
                "'{}' is {} in 32 bits, with which it is computed; give a number such as 0.001", text,
                computed > 0 ? "infinite" : "0");
        },
        "");
}

CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& words) {
    option->type_name(fmt::format("{}", fmt::join(words, "|")));
    return option->check(CLI::Validator(
        [words](std::string& text) -> std::string {
            if (std::find(words.begin(), words.end(), text) != words.end()) return {};
            return fmt::format("'{}' is not one of {}", text, fmt::join(words, ", "));
        },
        ""));
}

CLI::Validator size_in_bytes() {
    return CLI::Validator(
        [](std::string& text) -> std::string {
            std::string bytes = text;
            std::int64_t value = 0;
            try {
                CLI::AsSizeValue{false}(bytes);
                const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), value);
                if (error != std::errc() || end != bytes.data() + bytes.size()) value = 0;
            } catch (const CLI::ValidationError&) {  // of the number or of the unit
                value = 0;
            }
            if (value <= 0) return fmt::format("'{}' is not a size above 0, such as 512MiB or 2G", text);
            text = bytes;
            return {};
        },
        "");
}

}  // namespace dp::trainer
