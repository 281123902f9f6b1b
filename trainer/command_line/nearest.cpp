// SPDX-License-Identifier: Apache-2.0
//
// What an unknown word on the command line may have meant.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/text.hpp"
#include "trainer/command_line/parse.hpp"

namespace dp::trainer {
namespace {

// Ours, and what others call it.
constexpr std::pair<std::string_view, std::string_view> kOurs[] = {
    {"--adam-beta1 and --adam-beta2", "--betas"},
    {"--adam-eps", "--eps"},
    {"--batch-size", "--per-device-train-batch-size,--train-batch-size"},
    {"--batch-size and --gradient-accumulation-steps (a global batch is ranks x both)",
     "--global-batch-size"},
    {"--bf16", "--fp16"},
    {"--checkpoint-dir", "--load,--output-dir,--resume-from-checkpoint,--save"},
    {"--clip-grad", "--clip-grad-norm,--gradient-clip-val,--max-grad-norm"},
    {"--data-dir", "--data-path"},
    {"--epochs", "--max-epochs,--num-epochs,--num-train-epochs"},
    {"--gradient-accumulation-steps", "--accumulate-grad-batches,--ga-steps"},
    {"--init-from", "--model-name-or-path,--pretrained-checkpoint"},
    {"--log-interval", "--logging-steps"},
    {"--lr", "--learning-rate"},
    {"--lr-schedule", "--lr-scheduler,--lr-scheduler-type"},
    {"--lr-warmup-fraction", "--lr-warmup-iters,--warmup-ratio"},
    {"--pipeline-split",
     "--account-for-embedding-in-pipeline-split,--account-for-loss-in-pipeline-split,"
     "--decoder-first-pipeline-num-layers,--decoder-last-pipeline-num-layers"},
    {"--recompute", "--recompute-activations,--recompute-granularity"},
    {"--samples", "--train-samples"},
    {"--save-interval", "--save-steps"},
    {"--seq-length", "--max-position-embeddings"},
    {"--sgd-momentum", "--momentum"},
    {"--steps", "--exit-interval,--max-steps,--train-iters"},
    {"--tensorboard", "--log-dir"},
    {"--weight-decay", "--weight-decay-rate"},
};

// Levenshtein's: letters that are inserted, deleted or replaced.
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
    std::size_t least = meant.size() / 3 + 1;  // from here on they are not similar
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
    for (const auto& [ours, theirs] : kOurs)
        for (const std::string_view one : split(theirs, ','))
            if (one == name) return ours;
    return std::nullopt;
}

}  // namespace dp::trainer
