// SPDX-License-Identifier: Apache-2.0
//
// What the values of options may be: how each is read, and how it is written where ranks compare them. A
// complaint says what was given and what is allowed. The options are declared with these, see
// option_list.hpp.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.hpp"

namespace dp::trainer {

template <typename T>
struct Format {
    std::string type;  // in help, such as "N"
    std::function<Try<T>(const std::string&)> parse;
    std::function<std::string(const T&)> text;
};

// A whole number in [low, high].
Format<std::int64_t> whole(std::int64_t low, std::int64_t high);
// A number in [low, high), which it is also in 32 bits.
Format<double> number(double low, double high, const char* such_as);
// A number above 0.
Format<double> positive(const char* such_as);
// The same of what is computed with in 32 bits: neither 0 nor infinite there.
Format<double> positive_in_32_bits(const char* such_as);
// Bytes, such as 1500000, 512MiB or 1.5G; units are powers of 1024, as Slurm's.
Format<std::int64_t> size_in_bytes();
Format<std::filesystem::path> path(const char* type);
// One that is there.
Format<std::filesystem::path> existing_path(const char* type);
Format<std::filesystem::path> existing_directory(const char* type);
Format<std::string> any_text(const char* type);

// One of a few words. `also`: words that other programs have for the same.
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
// Words that stand for themselves, or for the number that they are.
Format<std::string> one_of(const std::vector<std::string>& words);
Format<std::int64_t> one_of(const std::vector<std::int64_t>& numbers);

}  // namespace dp::trainer
