// SPDX-License-Identifier: Apache-2.0
#include "trainer/command_line/nearest.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace dp::trainer {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;
constexpr std::array<Pair, 37> kOurs{{
    {"--accumulate-grad-batches", "--gradient-accumulation-steps"},
    {"--betas", "--adam-beta1 and --adam-beta2"},
    {"--clip-grad-norm", "--clip-grad"},
    {"--data-path", "--data-dir"},
    {"--eps", "--adam-eps"},
    {"--exit-interval", "--steps"},
    {"--fp16", "--bf16"},
    {"--ga-steps", "--gradient-accumulation-steps"},
    {"--global-batch-size",
     "--batch-size and --gradient-accumulation-steps (a global batch is ranks x both)"},
    {"--gradient-clip-val", "--clip-grad"},
    {"--learning-rate", "--lr"},
    {"--load", "--checkpoint-dir"},
    {"--log-dir", "--tensorboard"},
    {"--logging-steps", "--log-interval"},
    {"--lr-scheduler", "--lr-schedule"},
    {"--lr-scheduler-type", "--lr-schedule"},
    {"--lr-warmup-iters", "--lr-warmup-fraction"},
    {"--max-epochs", "--epochs"},
    {"--max-grad-norm", "--clip-grad"},
    {"--max-position-embeddings", "--seq-length"},
    {"--max-steps", "--steps"},
    {"--micro-batch-size", "--batch-size"},
    {"--momentum", "--sgd-momentum"},
    {"--num-epochs", "--epochs"},
    {"--num-train-epochs", "--epochs"},
    {"--output-dir", "--checkpoint-dir"},
    {"--per-device-train-batch-size", "--batch-size"},
    {"--recompute-activations", "--recompute"},
    {"--recompute-granularity", "--recompute"},
    {"--resume-from-checkpoint", "--checkpoint-dir"},
    {"--save", "--checkpoint-dir"},
    {"--save-steps", "--save-interval"},
    {"--train-batch-size", "--batch-size"},
    {"--train-iters", "--steps"},
    {"--train-samples", "--samples"},
    {"--warmup-ratio", "--lr-warmup-fraction"},
    {"--weight-decay-rate", "--weight-decay"},
}};

// Letters that are put in, left out or changed from one to the other (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names) {
    const auto bare = [](std::string_view name) {
        return name.substr(std::min(name.find_first_not_of('-'), name.size()));
    };
    const std::string_view meant = bare(word);
    std::optional<std::string> best;
    std::size_t least = meant.size() / 3 + 1;  // from here on it is not like it
    for (const auto& name : names) {
        const bool begins = meant.size() >= 3 && bare(name).starts_with(meant);
        const std::size_t apart = begins ? 1 : distance(meant, bare(name));
        if (apart >= least) continue;
        least = apart;
        best = name;
    }
    return best;
}

std::optional<std::string_view> ours_for(std::string_view name) {
    const auto* found =
        std::find_if(kOurs.begin(), kOurs.end(), [&](const Pair& pair) { return pair.first == name; });
    if (found == kOurs.end()) return std::nullopt;
    return found->second;
}

}  // namespace dp::trainer
