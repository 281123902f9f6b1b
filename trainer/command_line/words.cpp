// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/words.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>

namespace dp::trainer {
namespace {

// Also of the verbs; null where there is none of that name.
const CLI::Option* option_named(const CLI::App& app, const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw(name);
    for (const CLI::App* verb : app.get_subcommands(nullptr))
        if (option == nullptr) option = verb->get_option_no_throw(name);
    return option;
}

}  // namespace

std::optional<std::string> empty_word(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        const bool is_option = word.starts_with("--");
        if (is_option && word.find('=') == word.size() - 1) return word.substr(0, word.size() - 1);
        if (!word.empty()) continue;
        const bool is_value = i > 0 && words[i - 1].starts_with("--");
        return is_value ? words[i - 1] : i + 1 == words.size() ? "the last word" : "a word";
    }
    return std::nullopt;
}

std::vector<std::string> without_empty_prompt(std::vector<std::string> words) {
    std::erase(words, "--prompt=");
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] != "--prompt" || !words[i + 1].empty()) continue;
        const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
        words.erase(at, at + 2);
    }
    return words;
}

std::vector<std::string> with_dashes(std::vector<std::string> words, const CLI::App& app) {
    bool is_value = false;
    for (std::string& word : words) {
        if (word == "--" && !is_value) break;  // files from here on
        std::string name = word.substr(0, word.find('='));
        const bool has_value = name.size() < word.size();
        std::replace(name.begin(), name.end(), '_', '-');
        const bool is_name = !is_value && name.starts_with("--");
        const CLI::Option* option = is_name ? option_named(app, name) : nullptr;
        is_value = option != nullptr && !has_value && option->get_items_expected_min() > 0;
        if (option != nullptr) word.replace(0, name.size(), name);
    }
    return words;
}

}  // namespace dp::trainer
