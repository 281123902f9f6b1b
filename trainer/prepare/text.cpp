// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/base/files.hpp"
#include "trainer/base/random.hpp"
#include "trainer/data/token_shard.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

Result<std::vector<Token>> encode_all(std::span<const fs::path> documents, Tokenizer& tokenizer) {
    std::vector<fs::path> order(documents.begin(), documents.end());
    // Shuffled, so that the test set has something of everything, also if files are named by date.
    Random random(1, 0);
    for (auto left = static_cast<std::uint32_t>(order.size()); left > 1; --left)
        std::swap(order[left - 1], order[random.below(left)]);

    std::vector<Token> tokens;
    for (const fs::path& file : order) {
        const auto text = DP_TRY(read_file(file));
        tokens.push_back(tokenizer.end_of_text());
        if (auto done = tokenizer.encode(text, tokens); !done)
            return fail(done.error().fault, "{}: {}", file.string(), done.error().message);
    }
    return tokens;
}

Result<void> write_part(std::span<const Token> tokens, std::string_view part, const fs::path& directory) {
    for (std::size_t shard = 0; shard * kTokensOfShard < tokens.size(); ++shard) {
        const auto rest = tokens.subspan(shard * kTokensOfShard);
        const auto file = directory / fmt::format("{}_{:06}.bin", part, shard);
        DP_TRY(write_shard(file, rest.first(std::min(rest.size(), kTokensOfShard))));
    }
    return {};
}

}  // namespace

Result<std::vector<fs::path>> text_files(std::span<const fs::path> paths) {
    std::vector<fs::path> files;
    for (const fs::path& path : paths) {
        std::error_code error;
        if (!fs::is_directory(path, error)) {
            files.push_back(path);
            continue;
        }
        std::vector<fs::path> found;
        for (fs::recursive_directory_iterator at(path, error), end; at != end && !error;
             at.increment(error)) {
            std::error_code ignored;
            if (at->path().extension() == ".txt" && at->is_regular_file(ignored)) found.push_back(at->path());
        }
        if (error) return fail(Fault::usage, "{}: {}", path.string(), error.message());
        if (found.empty())
            return fail(Fault::usage, "{}: no *.txt there; give the text's files by name", path.string());
        std::sort(found.begin(), found.end());
        files.insert(files.end(), found.begin(), found.end());
    }
    return files;
}

Result<std::string> write_token_shards(std::span<const fs::path> documents, Tokenizer& tokenizer,
                                       double validation, const fs::path& directory) {
    const auto tokens = DP_TRY(encode_all(documents, tokenizer));
    const auto tests = static_cast<std::size_t>(std::ceil(validation * static_cast<double>(tokens.size())));
    if (tests < 2 || tokens.size() - tests < 2)
        return fail(Fault::usage, "the text has {} tokens, too few to train on; give more", tokens.size());
    const auto all = std::span(tokens);
    DP_TRY(write_part(all.first(all.size() - tests), "train", directory));
    DP_TRY(write_part(all.last(tests), "val", directory));
    DP_TRY(save_tokenizer(tokenizer, directory));
    return fmt::format("{} document{}, {} tokens to train and {} to test with (tokenizer {}, vocabulary {})",
                       documents.size(), documents.size() == 1 ? "" : "s", all.size() - tests, tests,
                       tokenizer.name(), tokenizer.vocabulary());
}

}  // namespace dp::trainer
