// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "trainer/base/files.hpp"
#include "trainer/data/megatron_index.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/data/token_shard.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// Whether it is one of Megatron's two files, of which the index is opened.
bool is_megatron(const fs::path& file, std::string_view extension) {
    std::error_code ignored;
    auto other = file;
    other.replace_extension(extension == ".idx" ? ".bin" : ".idx");
    return file.extension() == extension && fs::exists(other, ignored);
}

constexpr std::array<TokenFormat, 3> kFormats{{
    {"llm.c's *.bin",
     [](const fs::path& file) { return file.extension() == ".bin" && !is_megatron(file, ".bin"); },
     open_shard},
    {"Megatron-LM's *.bin with *.idx", [](const fs::path& file) { return is_megatron(file, ".idx"); },
     open_megatron},
    {"NumPy's *.npy", [](const fs::path& file) { return file.extension() == ".npy"; }, open_npy},
}};

const TokenFormat* format_of(const fs::path& file) {
    const auto* format = std::find_if(kFormats.begin(), kFormats.end(),
                                      [&](const TokenFormat& one) { return one.is_one(file); });
    return format == kFormats.end() ? nullptr : format;
}

tl::unexpected<Error> no_tokens(const fs::path& where, const std::string& why) {
    std::vector<std::string_view> known;
    for (const TokenFormat& format : kFormats) known.push_back(format.what);
    return fail(Fault::usage,
                "{}: {} ({}, *.txt or *.jsonl); make some with `trainer prepare --output DIR` and give "
                "--data-dir DIR",
                where.string(), why, fmt::join(known, ", "));
}

}  // namespace

namespace {

bool is_letter(char letter) {
    return std::isalpha(static_cast<unsigned char>(letter)) != 0;
}

// "val", "valid" and "validation" are the same word, "train" and "training", "test" and "tests"; "testament" is another.
bool ends_a_word(const std::string& name, std::size_t at) {
    const auto end = std::find_if_not(name.begin() + static_cast<std::ptrdiff_t>(at), name.end(), is_letter);
    const std::string rest(name.begin() + static_cast<std::ptrdiff_t>(at), end);
    return rest.empty() || rest == "id" || rest == "idation" || rest == "ing" || rest == "s";
}

bool contains(const fs::path& file, std::string_view word) {
    return word != "test" && file.stem().string().find(word) != std::string::npos;
}

}  // namespace

bool has_word(const fs::path& file, std::string_view word) {
    const std::string name = file.stem().string();
    for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1))
        if ((at == 0 || !is_letter(name[at - 1])) && ends_a_word(name, at + word.size())) return true;
    return false;
}

FilesByPurpose by_purpose(std::vector<fs::path> files, HasWord has) {
    std::sort(files.begin(), files.end());
    const auto tells = [&](const fs::path& file) {
        return has(file, "train") || has(file, "val") || has(file, "test");
    };
    // "wikitrain.bin" and "wikival.bin", where no name has a word of its own.
    if (has == has_word && std::ranges::none_of(files, tells)) has = contains;
    FilesByPurpose parts;
    std::vector<fs::path> tests, others;
    for (auto& file : files) {
        auto& part = has(file, "train")  ? parts.train
                     : has(file, "val")  ? parts.test
                     : has(file, "test") ? tests
                                         : others;
        part.push_back(std::move(file));
    }
    if (parts.test.empty()) parts.test = std::move(tests);
    if (parts.train.empty()) parts.train = std::move(others);
    return parts;
}

Result<TokenFiles> find_token_files(const fs::path& where) {
    std::error_code ignored;
    if (!fs::is_directory(where, ignored)) {
        // Megatron-LM calls its two files by what they begin with.
        auto index = where;
        if (is_megatron(where, ".bin"))
            index.replace_extension(".idx");
        else if (!fs::exists(where, ignored))
            index += ".idx";
        const TokenFormat* format = format_of(index);
        if (format == nullptr || !fs::exists(index, ignored)) return no_tokens(where, "no tokens there");
        return TokenFiles{format, {index}, {}};
    }
    const TokenFormat* format = nullptr;
    std::vector<fs::path> files;
    for (auto& file : entries_of(where)) {
        const TokenFormat* its = format_of(file);
        if (its == nullptr) continue;
        if (format != nullptr && its != format)
            return fail(Fault::usage, "{}: has {} and {}; give a directory with one kind of them",
                        where.string(), std::min(format, its)->what, std::max(format, its)->what);
        format = its;
        files.push_back(std::move(file));
    }
    if (format == nullptr) return no_tokens(where, "no tokens there");
    auto parts = by_purpose(std::move(files));
    if (parts.train.empty()) return no_tokens(where, "tokens to test with, but none to train on");
    return TokenFiles{format, std::move(parts.train), std::move(parts.test)};
}

Result<std::vector<TokenRun>> open_token_files(const TokenFormat& format, std::span<const fs::path> files) {
    std::vector<TokenRun> runs;
    for (const fs::path& file : files) {
        auto run = DP_TRY(format.open(file));
        runs.push_back(std::move(run));
    }
    return runs;
}

bool has_token_files(const fs::path& where) {
    return std::ranges::any_of(entries_of(where),
                               [](const fs::path& file) { return format_of(file) != nullptr; });
}

std::vector<fs::path> token_files(const fs::path& where) {
    auto found = find_token_files(where);
    if (!found) return {};
    found->train.insert(found->train.end(), found->test.begin(), found->test.end());
    return std::move(found->train);
}

}  // namespace dp::trainer
