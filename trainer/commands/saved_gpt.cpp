// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/saved_gpt.hpp"

#include <fmt/format.h>

#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/parallel/consistency.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

Result<GptShape> shape_in(const Manifest& manifest) {
    GptShape shape;
    const auto& told = manifest.training.shape;
    const std::pair<const char*, std::int64_t*> sizes[] = {{"num_layers", &shape.layers},
                                                           {"hidden_size", &shape.hidden},
                                                           {"num_attention_heads", &shape.heads},
                                                           {"seq_length", &shape.sequence},
                                                           {"vocab_size", &shape.vocabulary}};
    for (const auto& [name, value] : sizes) {
        const auto found = told.find(name);
        if (found == told.end() || found->second < 1)
            return fail(Fault::usage, "the manifest lacks {}; it is damaged", name);
        *value = found->second;
    }
    if (shape.hidden % shape.heads != 0)
        return fail(Fault::usage,
                    "the manifest's num_attention_heads do not divide its hidden_size; it is damaged");
    return shape;
}

Result<SavedGpt> open_one(const fs::path& path, std::string_view use) {
    auto manifest = DP_TRY(read_manifest(path));
    if (manifest.training.model != "gpt")
        return fail(Fault::usage, "{}: is of the model {}, and only gpt {}", path.string(),
                    manifest.training.model, use);
    for (std::int64_t rank = 0; rank < manifest.world(); ++rank) DP_TRY(verify_shard(path, manifest, rank));
    const auto shape = DP_TRY(shape_in(manifest));
    return SavedGpt{path, std::move(manifest), shape};
}

}  // namespace

Result<SavedGpt> open_saved_gpt(std::string_view option, const fs::path& directory, std::string_view use) {
    std::error_code ignored;
    const fs::path one = fs::weakly_canonical(directory, ignored);  // its name, however it was written
    if (checkpoint_step(one)) {
        auto found = open_one(one, use);
        if (!found && found.error().fault == Fault::checkpoint) found.error().fault = Fault::usage;
        return found;
    }
    const auto steps = checkpoints_in(directory);
    if (steps.empty())
        return fail(Fault::usage,
                    "{0} {1}: no checkpoint there; train with --model=gpt --checkpoint-dir {1} first", option,
                    directory.string());
    for (std::size_t i = 0;; ++i) {
        auto found = open_one(checkpoint_path(directory, steps[i]), use);
        if (found || found.error().fault != Fault::checkpoint) return found;
        if (i + 1 == steps.size()) return tl::unexpected(none_is_whole(found.error(), i > 0));
        print_error(fmt::format("{}; going back to {}", found.error().message,
                                checkpoint_path({}, steps[i + 1]).string()));
    }
}

Result<void> check_vocabulary(const Tokenizer& tokenizer, const fs::path& data_directory,
                              const GptShape& shape) {
    if (tokenizer.vocabulary() <= shape.vocabulary) return {};
    return fail(Fault::usage,
                "--data-dir {}: its tokenizer has {} tokens, and the model {}; give the data that it was "
                "trained on",
                data_directory.string(), tokenizer.vocabulary(), shape.vocabulary);
}

}  // namespace dp::trainer
