// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/base/files.hpp"
#include "trainer/data/token_shard.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// The shards of a part ("train", "val"), in the order of their names.
std::vector<fs::path> shards_of(const fs::path& directory, std::string_view part) {
    auto files = entries_of(directory);
    std::erase_if(files, [&](const fs::path& file) {
        return file.extension() != ".bin" || file.stem().string().find(part) == std::string::npos;
    });
    std::sort(files.begin(), files.end());
    return files;
}

Result<Split> load_part(const fs::path& directory, std::string_view part, std::int64_t sequence,
                        std::int64_t vocabulary) {
    std::vector<Token> tokens;
    const auto files = shards_of(directory, part);
    if (files.empty())
        return fail(Fault::usage,
                    "{}: no *{}*.bin with tokens; make them with `trainer prepare --output "
                    "DIR` and give --data-dir DIR",
                    directory.string(), part);
    for (const auto& file : files) {
        const std::size_t before = tokens.size();
        DP_TRY(read_shard(file, tokens));
        const auto largest =
            *std::max_element(tokens.begin() + static_cast<std::ptrdiff_t>(before), tokens.end());
        if (largest >= vocabulary)
            return fail(Fault::usage,
                        "{}: token {} is outside the model's vocabulary of {}; give --vocab-size {} or "
                        "more, or prepare the text with another --tokenizer",
                        file.string(), largest, vocabulary, largest + 1);
    }
    Split samples;
    samples.count = (static_cast<std::int64_t>(tokens.size()) - 1) / sequence;
    if (samples.count == 0)
        return fail(Fault::usage,
                    "{}: {} tokens in *{}*.bin, but a sequence of {} needs {}; give "
                    "a shorter sequence, or prepare more text",
                    directory.string(), tokens.size(), part, sequence, sequence + 1);
    const auto used = static_cast<std::size_t>(samples.count * sequence + 1);
    samples.features = Matrix::of<Token>(Type::u16, sequence, std::span(tokens).first(used));
    samples.targets = {Type::u16, sequence, {}};
    samples.next_is_target = true;
    return samples;
}

}  // namespace

Result<Dataset> load_tokens(const fs::path& directory, std::int64_t sequence, std::int64_t vocabulary) {
    auto train = DP_TRY(load_part(directory, "train", sequence, vocabulary));
    auto test = DP_TRY(load_part(directory, "val", sequence, vocabulary));
    return Dataset{std::move(train), std::move(test), directory.string()};
}

std::vector<fs::path> token_files(const fs::path& directory) {
    auto files = shards_of(directory, "train");
    const auto tests = shards_of(directory, "val");
    files.insert(files.end(), tests.begin(), tests.end());
    return files;
}

}  // namespace dp::trainer
