// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "trainer/commands/saved_model.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/parallel/consistency.hpp"

namespace dp::trainer {

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
    const auto saved = DP_TRY(open_saved_model("--checkpoint-dir", options.checkpoint_directory,
                                               {"gpt", "generates text", options.averaged}));
    const GptShape& shape = saved.shape.gpt;
    auto tokenizer = DP_TRY(open_tokenizer(options.data_directory));
    DP_TRY(check_vocabulary(tokenizer->vocabulary(), options.data_directory, shape));
    std::vector<Token> text;
    DP_TRY(tokenizer->encode(options.prompt, text));
    if (text.empty()) text.push_back(tokenizer->end_of_text());

    const auto device = open_cpu(threads_for(read_launch_context()));
    const auto model = make_language_model(shape);
    model->place(*device, std::nullopt, 1, type_of(options.precision));
    DP_TRY(device->status());
    DP_TRY(check_parameters(saved, *model));
    DP_TRY(load_values(saved, *model, *device));
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
