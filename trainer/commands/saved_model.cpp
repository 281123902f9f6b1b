// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/saved_model.hpp"

#include <fmt/format.h>

#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/training/checkpointing.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestAdapter = 65536;  // as the options have it

// Model::shape() backwards.
Result<ModelShape> shape_in(const Manifest& manifest, const Model& like) {
    ModelShape shape;
    const std::pair<std::string_view, std::int64_t*> sizes[] = {
        {"image_size", &shape.image_size},         {"init_features", &shape.features},
        {"num_layers", &shape.gpt.layers},         {"hidden_size", &shape.gpt.hidden},
        {"num_attention_heads", &shape.gpt.heads}, {"seq_length", &shape.gpt.sequence},
        {"vocab_size", &shape.gpt.vocabulary}};
    const auto& told = manifest.training.shape;
    for (const auto& [name, unused] : like.shape()) {
        const auto found = told.find(name);
        if (found == told.end() || found->second < 1)
            return fail(Fault::usage, "the manifest lacks {}; it is damaged", name);
        *std::ranges::find(sizes, name, [](const auto& one) { return one.first; })->second = found->second;
    }
    // Of adapters, if there are any.
    for (const auto& [name, size] :
         {std::pair{"lora_rank", &shape.gpt.lora_rank}, {"lora_alpha", &shape.gpt.lora_alpha}}) {
        const auto found = told.find(name);
        if (found == told.end()) continue;
        if (found->second < 1 || found->second > kLargestAdapter)
            return fail(Fault::usage, "the manifest's {} is {}; it is damaged", name, found->second);
        *size = found->second;
    }
    if (const auto found = told.find("document_begins"); found != told.end()) {
        if (found->second < 0 || found->second >= shape.gpt.vocabulary)
            return fail(Fault::usage, "the manifest's document_begins is {}; it is damaged", found->second);
        shape.gpt.document_begins = found->second;
    }
    if (shape.gpt.hidden % shape.gpt.heads != 0)
        return fail(Fault::usage,
                    "the manifest's num_attention_heads do not divide its hidden_size; it is damaged");
    return shape;
}

Result<SavedModel> open_one(const fs::path& path, const WantedModel& wanted) {
    auto manifest = DP_TRY(read_manifest(path));
    const std::string& model = manifest.training.model;
    if (!wanted.model.empty() && model != wanted.model)
        return fail(Fault::usage, "{}: is of the model {}, and only {} {}", path.string(), model,
                    wanted.model, wanted.use);
    const ModelInfo* info = find_model(model);
    if (info == nullptr)
        return fail(Fault::usage,
                    "{}: is of the model {}, which this trainer does not have; use the trainer "
                    "that wrote it",
                    path.string(), model);
    for (std::int64_t rank = 0; rank < manifest.world(); ++rank) DP_TRY(verify_shard(path, manifest, rank));
    const auto shape = DP_TRY(shape_in(manifest, *info->make({})));
    const auto average = std::ranges::find(manifest.vectors, "ema", &StoredVector::name);
    if (wanted.averaged && average == manifest.vectors.end())
        return fail(Fault::usage,
                    "{}: has no average of the weights; leave out --weights, or train with --ema-decay",
                    path.string());
    return SavedModel{path, std::move(manifest), info, shape, wanted.averaged};
}

}  // namespace

Result<SavedModel> open_saved_model(std::string_view option, const fs::path& directory,
                                    const WantedModel& wanted) {
    std::error_code ignored;
    const fs::path one = fs::weakly_canonical(directory, ignored);  // its name, however it was written
    if (checkpoint_step(one)) {
        auto found = open_one(one, wanted);
        if (!found && found.error().fault == Fault::checkpoint) found.error().fault = Fault::usage;
        return found;
    }
    const auto steps = checkpoints_in(directory);
    if (steps.empty())
        return fail(Fault::usage, "{0} {1}: no checkpoint there; train with {2}--checkpoint-dir {1} first",
                    option, directory.string(),
                    wanted.model.empty() ? "" : fmt::format("--model={} ", wanted.model));
    for (std::size_t i = 0;; ++i) {
        auto found = open_one(checkpoint_path(directory, steps[i]), wanted);
        if (found || found.error().fault != Fault::checkpoint) return found;
        if (i + 1 == steps.size()) return tl::unexpected(none_is_whole(found.error(), i > 0));
        print_error(fmt::format("{}; going back to {}", found.error().message,
                                checkpoint_path({}, steps[i + 1]).string()));
    }
}

Result<void> check_parameters(const SavedModel& saved, const Model& model) {
    const auto& stored = saved.manifest.training.parameters;
    for (const auto& one : model.parameters().all())
        if (one.number >= stored.size() || stored[one.number].name != one.name ||
            stored[one.number].shape != one.shape)
            return fail(Fault::usage, "{}: lacks {}; it was written by another version of the trainer",
                        saved.path.string(), one.name);
    return {};
}

Result<void> load_values(const SavedModel& saved, const Model& model, Device& device) {
    const ParameterSet& parameters = model.parameters();
    std::vector<Vector> vectors{{"values", parameters.values(), true}};
    if (parameters.buffers()) vectors.push_back({"buffers", parameters.buffers(), false});
    DP_TRY(read_vectors(saved.path, saved.manifest, placed_parts(parameters), vectors, device));
    if (saved.averaged)  // all but what is frozen
        DP_TRY(read_vectors(saved.path, saved.manifest, placed_parts(parameters),
                            {{"ema", parameters.values(), true}}, device));
    parameters.refresh_compute_copy(device);
    return device.status();
}

Result<void> check_vocabulary(std::int64_t tokens, const fs::path& data_directory, const GptShape& shape) {
    if (tokens <= shape.vocabulary) return {};
    return fail(Fault::usage,
                "--data-dir {}: its tokenizer has {} tokens, and the model {}; give the data that it was "
                "trained on",
                data_directory.string(), tokens, shape.vocabulary);
}

}  // namespace dp::trainer
