// SPDX-License-Identifier: Apache-2.0
//
// What the values of options may be: how each is read, and how it is written where ranks compare them. A
// complaint says what was given and what is allowed. Options are declared with these (parse.hpp).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/failure.hpp"

namespace dp::trainer {

template <typename T>
struct Format {
    std::string type;  // in help, such as "N"
    std::function<Try<T>(const std::string&)> parse;
    std::function<std::string(const T&)> text = [](const T& value) {
        if constexpr (requires { value.string(); })  // a path
            return value.string();
        else
            return fmt::format("{}", value);
    };
};

// A whole number in [low, high].
Format<std::int64_t> whole(std::int64_t low, std::int64_t high);
// A number in [low, high), also as a float.
Format<double> number(double low, double high, const char* such_as);
// A number above 0; with Bits::fp32 neither 0 nor infinite as a float.
enum class Bits { any, fp32 };
Format<double> positive(const char* such_as, Bits bits = Bits::any);
// Bytes, such as 1500000, 512MiB or 1.5G; units are powers of 1024, as Slurm's.
Format<std::int64_t> size_in_bytes();
enum class PathOf { anything, existing, existing_directory };
Format<std::filesystem::path> path(const char* type, PathOf what = PathOf::anything);
Format<std::string> any_text(const char* type);
// Words with commas between them, none of them empty.
Format<std::vector<std::string>> words(const char* type);

// One of a few words. `also`: what other programs call the same.
template <typename T>
Format<T> one_of(std::vector<std::pair<std::string, T>> words,
                 std::vector<std::pair<std::string, T>> also = {}) {
    std::string names, listed;
    for (const auto& [word, value] : words) {
        names += (names.empty() ? "" : "|") + word;
        listed += (listed.empty() ? "" : ", ") + word;
    }
    const auto text = [words](const T& value) {
        for (const auto& [word, meant] : words)
            if (meant == value) return word;
        return std::string("none");
    };
    words.insert(words.end(), also.begin(), also.end());
    const auto parse = [words, listed](const std::string& given) -> Try<T> {
        for (const auto& [word, value] : words)
            if (word == given) return value;
        return dp::fail(fmt::format("'{}' is not one of {}", given, listed));
    };
    return {std::move(names), parse, text};
}
template <typename T>
Format<T> one_of(const std::vector<T>& values) {
    std::vector<std::pair<std::string, T>> words;
    for (const T& value : values) words.emplace_back(fmt::format("{}", value), value);
    return one_of<T>(std::move(words));
}

}  // namespace dp::trainer
