// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "trainer/checkpoint/directory.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/parallel/consistency.hpp"
#include "trainer/training/checkpointing.hpp"

namespace dp::trainer {
namespace {

Result<Manifest> read_checkpoint(const std::filesystem::path& path) {
    auto manifest = DP_TRY(read_manifest(path));
    if (manifest.training.model != "gpt")
        return fail(Fault::usage, "{}: is of the model {}, and only gpt generates text", path.string(),
                    manifest.training.model);
    for (std::int64_t rank = 0; rank < manifest.world(); ++rank) DP_TRY(verify_shard(path, manifest, rank));
    return manifest;
}

// The newest checkpoint that is whole, if it is gpt's.
Result<Manifest> find_checkpoint(const std::filesystem::path& directory) {
    const auto steps = checkpoints_in(directory);
    if (steps.empty())
        return fail(
            Fault::usage,
            "--checkpoint-dir {0}: no checkpoint there; train with --model=gpt --checkpoint-dir {0} first",
            directory.string());
    for (std::size_t i = 0;; ++i) {
        auto found = read_checkpoint(checkpoint_path(directory, steps[i]));
        if (found || found.error().fault != Fault::checkpoint) return found;
        if (i + 1 == steps.size()) return tl::unexpected(none_is_whole(found.error(), i > 0));
        print_error(fmt::format("{}; going back to {}", found.error().message,
                                checkpoint_path({}, steps[i + 1]).string()));
    }
}

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

}  // namespace

std::size_t pick_token(std::span<const float> logits, const Drawing& how, Random& random) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    if (how.temperature == 0) return order[0];
    if (how.top_k > 0 && static_cast<std::size_t>(how.top_k) < order.size())
        order.resize(static_cast<std::size_t>(how.top_k));
    std::vector<double> sums;  // of the weights up to here
    sums.reserve(order.size());
    double sum = 0;
    for (const std::size_t token : order)
        sums.push_back(sum +=
                       std::exp(static_cast<double>(logits[token] - logits[order[0]]) / how.temperature));
    if (how.top_p < 1) {
        const auto last = std::lower_bound(sums.begin(), sums.end(), how.top_p * sum);
        sums.erase(std::min(last, sums.end() - 1) + 1, sums.end());
        sum = sums.back();
    }
    const double drawn = static_cast<double>(random.bits() >> 11) * 0x1p-53 * sum;
    const auto place = std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin();
    return order[std::min(static_cast<std::size_t>(place), sums.size() - 1)];
}

Result<void> generate(const GenerateOptions& options) {
    const auto manifest = DP_TRY(find_checkpoint(options.checkpoint_directory));
    const auto shape = DP_TRY(shape_in(manifest));
    auto tokenizer = DP_TRY(open_tokenizer(options.data_directory));
    if (tokenizer->vocabulary() > shape.vocabulary)
        return fail(Fault::usage,
                    "--data-dir {}: its tokenizer has {} tokens, and the model {}; give the data that it was "
                    "trained on",
                    options.data_directory.string(), tokenizer->vocabulary(), shape.vocabulary);
    std::vector<Token> text;
    DP_TRY(tokenizer->encode(options.prompt, text));
    if (text.empty()) text.push_back(tokenizer->end_of_text());

    const auto device = open_cpu(threads_for(read_launch_context()));
    const auto model = make_language_model(shape);
    model->place(*device, std::nullopt, 1, type_of(options.precision));
    DP_TRY(device->status());
    const std::vector<Vector> values{{"values", model->parameters().values(), true}};
    const auto path = checkpoint_path(options.checkpoint_directory, manifest.progress.step);
    DP_TRY(read_vectors(path, manifest, places_of(model->parameters()), values, *device));
    model->parameters().refresh_compute_copy(*device);
    const Tensor wide = device->make(Type::f32, {1, shape.vocabulary});

    fmt::print("{}", options.prompt);
    Random random(options.seed, 0);
    for (std::int64_t made = 0; made < options.tokens; ++made) {
        const auto length = std::min<std::int64_t>(static_cast<std::int64_t>(text.size()), shape.sequence);
        const std::vector<std::int32_t> seen(text.end() - length, text.end());
        const Tensor tokens = device->copy_of<std::int32_t>(Type::i32, {1, length}, seen);
        device->convert(model->next_logits(tokens), wide);
        auto logits = device->values_of<float>(wide);
        DP_TRY(device->status());
        logits.resize(static_cast<std::size_t>(tokenizer->vocabulary()));  // a model may have more
        text.push_back(static_cast<Token>(pick_token(logits, options.drawing, random)));
        if (text.back() == tokenizer->end_of_text()) break;
        fmt::print("{}", tokenizer->decode(std::span(text).last(1)));
        std::fflush(stdout);
    }
    fmt::print("\n");
    return {};
}

}  // namespace dp::trainer
