// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/model_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "trainer/command_line/checks.hpp"

namespace dp::trainer {
namespace {

struct GptSize {
    const char* name;
    std::int64_t layers, hidden, heads, sequence;
};
// The first is for CPUs; the others are GPT-2's four (Radford et al. 2019).
constexpr std::array<GptSize, 5> kGptSizes{{{"10M", 6, 384, 6, 256},
                                            {"124M", 12, 768, 12, 1024},
                                            {"355M", 24, 1024, 16, 1024},
                                            {"774M", 36, 1280, 20, 1024},
                                            {"1.5B", 48, 1600, 25, 1024}}};
constexpr std::array kImageSizes{"256", "512", "1024"};

std::vector<std::string> size_names() {
    std::vector<std::string> names;
    for (const auto& size : kGptSizes) names.emplace_back(size.name);
    return names;
}

bool says_something_of_gpt(const ModelOptions& o) {
    return !o.gpt_size.empty() || o.layers || o.hidden || o.heads || o.sequence || o.vocabulary ||
           o.recompute || o.initial_deviation || o.hidden_dropout || o.attention_dropout;
}

}  // namespace

void add_model_options(CLI::App& app, ModelOptions& options) {
    auto whole_number = [&](const char* names, std::optional<std::int64_t>& value, const char* what,
                            std::int64_t most) {
        app.add_option(names, value, what)->check(whole(1, most))->type_name("N");
    };
    one_of(app.add_option("--image-size", options.image_size, "unet2d: pixels of a side (default: 256)"),
           {kImageSizes.begin(), kImageSizes.end()});
    whole_number("--init-features", options.features, "unet2d: channels of the first level (default: 32)",
                 1024);
    one_of(app.add_option("--gpt-size", options.gpt_size,
                          "gpt: layers, hidden size, heads and sequence together (default: 10M)"),
           size_names());
    whole_number("--num-layers", options.layers, "gpt: layers", 1024);
    whole_number("--hidden-size", options.hidden, "gpt: numbers of a token's vector", 65536);
    whole_number("--num-attention-heads", options.heads, "gpt: heads", 1024);
    whole_number("--seq-length", options.sequence, "gpt: tokens of a sequence", 65536);
    whole_number("--vocab-size", options.vocabulary,
                 "gpt: tokens that there are (default: the data's, else 50257)", 65536);
    app.add_flag(
        "--recompute", options.recompute,
        "gpt: make a layer's activations again in the backward pass, instead of keeping all of them");
    app.add_option("--init-method-std", options.initial_deviation,
                   "gpt: the standard deviation that weights begin with; of what is added to the residual "
                   "stream it is divided by the root of twice the layers (default: 0.02)")
        ->check(positive_in_32_bits())
        ->type_name("X");
    app.add_option("--hidden-dropout", options.hidden_dropout,
                   "gpt: the part of the embedding's and of the residual branches' numbers that is left out "
                   "in training (default: 0)")
        ->check(number(0, 1, "0.1"))
        ->type_name("X");
    app.add_option("--attention-dropout", options.attention_dropout,
                   "gpt: the part of attention's weights that is left out in training (default: 0)")
        ->check(number(0, 1, "0.1"))
        ->type_name("X");
}

Result<ModelShape> shape_of(const ModelOptions& o, std::string_view model,
                            std::optional<std::int64_t> vocabulary) {
    if (model != "unet2d" && (o.image_size || o.features))
        return fail(
            Fault::usage,
            fmt::format("--image-size and --init-features are unet2d's, not {}'s; leave them out", model));
    if (model != "gpt" && says_something_of_gpt(o))
        return fail(Fault::usage,
                    fmt::format("--gpt-size, --num-layers, --hidden-size, --num-attention-heads, "
                                "--seq-length, --vocab-size, --recompute, --init-method-std, "
                                "--hidden-dropout and --attention-dropout are gpt's, not {}'s; leave them "
                                "out",
                                model));
    ModelShape shape;
    shape.image_size = o.image_size.value_or(shape.image_size);
    shape.features = o.features.value_or(shape.features);

    const auto named = std::find_if(kGptSizes.begin(), kGptSizes.end(),
                                    [&](const GptSize& size) { return size.name == o.gpt_size; });
    const GptSize& size = named == kGptSizes.end() ? kGptSizes.front() : *named;
    GptShape& gpt = shape.gpt;
    gpt.layers = o.layers.value_or(size.layers);
    gpt.hidden = o.hidden.value_or(size.hidden);
    gpt.heads = o.heads.value_or(size.heads);
    gpt.sequence = o.sequence.value_or(size.sequence);
    gpt.vocabulary = o.vocabulary.value_or(vocabulary.value_or(gpt.vocabulary));
    gpt.recompute = o.recompute;
    gpt.initial_deviation = static_cast<float>(o.initial_deviation.value_or(gpt.initial_deviation));
    gpt.hidden_dropout = static_cast<float>(o.hidden_dropout.value_or(gpt.hidden_dropout));
    gpt.attention_dropout = static_cast<float>(o.attention_dropout.value_or(gpt.attention_dropout));
    if (gpt.hidden % gpt.heads != 0)
        return fail(Fault::usage,
                    fmt::format("--hidden-size {} is not a multiple of --num-attention-heads {}; give "
                                "one that is, {} say",
                                gpt.hidden, gpt.heads, (gpt.hidden / gpt.heads + 1) * gpt.heads));
    if (vocabulary && gpt.vocabulary < *vocabulary)
        return fail(Fault::usage,
                    fmt::format("--vocab-size {} is smaller than the data's, {}; give at least that, or "
                                "leave it out",
                                gpt.vocabulary, *vocabulary));
    return shape;
}

}  // namespace dp::trainer
