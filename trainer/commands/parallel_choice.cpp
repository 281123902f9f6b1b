// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/parallel_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/partition.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/models/pipeline_split.hpp"
#include "trainer/training/pipeline_time.hpp"

namespace dp::trainer {
namespace {

// "1, 2, 3 or 6": the divisors up to `most`.
std::string choices_of(std::int64_t number, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    auto divisors = divisors_of(number);
    std::erase_if(divisors, [&](std::int64_t one) { return one > most; });
    std::string text = fmt::to_string(divisors.front());
    for (std::size_t i = 1; i < divisors.size(); ++i)
        text += (i + 1 < divisors.size() ? ", " : " or ") + fmt::to_string(divisors[i]);
    return text;
}

// The batch is divided for a pipeline where neither of them is given.
bool says_micro_batches(const Options& options) {
    return options.gave("--batch-size") || options.gave("--accumulate");
}

// Options that a divided model does not support yet.
Result<void> check_others(const Options& options, const std::string& asked) {
    if (options.shape.gpt.lora_rank > 0)
        return fail(Fault::usage, "{} does not divide adapters; leave it or --lora-rank out", asked);
    return {};
}

// How many ranks divide the model in one way, and who said so.
struct Asked {
    std::int64_t size;
    std::string by;  // "--tensor-parallel 4", "--dp-tensor=4"
};

Result<Asked> asked(std::string_view option, const std::optional<std::int64_t>& given,
                    std::string_view of_step, std::int64_t size) {
    if (given && size > 1 && *given != size)
        return fail(Fault::usage, "{} {}, but the step has {}={}; give the same, or leave one out", option,
                    *given, of_step, size);
    return given ? Asked{*given, fmt::format("{} {}", option, *given)}
                 : Asked{size, fmt::format("{}={}", of_step, size)};
}

Result<void> check_tensor(const Asked& tensor, std::int64_t ranks, std::int64_t heads) {
    if (ranks % tensor.size != 0)
        return fail(Fault::usage, "{} rank{} cannot be divided by {}; give {}, or a multiple of {} ranks",
                    ranks, ranks == 1 ? "" : "s", tensor.by, choices_of(std::gcd(ranks, heads)), tensor.size);
    if (heads % tensor.size != 0)
        return fail(Fault::usage, "{} does not divide --num-attention-heads {}; give {}", tensor.by, heads,
                    choices_of(std::gcd(ranks, heads)));
    return {};
}

// Each rank has as many tokens of each batch, also of a test's.
Result<void> check_tokens(const Asked& tensor, std::int64_t sequence) {
    const std::int64_t rest = sequence % tensor.size, less = sequence - rest;
    if (rest == 0) return {};
    return fail(Fault::usage,
                "--sequence-parallel: --seq-length {} is not a multiple of {}; give {}, or leave it out",
                sequence, tensor.by,
                less == 0 ? fmt::to_string(tensor.size) : fmt::format("{} or {}", less, less + tensor.size));
}

// --pipeline-split with numbers. Examples are even splits: how many tokens the data has may not be known yet.
Result<void> check_split(const Asked& stages, const Options& options) {
    const Settings& training = options.training;
    const std::vector<std::int64_t>& split = training.pipeline_split.layers;
    if (split.empty()) return {};
    const std::int64_t layers = options.shape.gpt.layers, chunks = stages.size * training.virtual_stages,
                       given = static_cast<std::int64_t>(split.size()),
                       sum = std::accumulate(split.begin(), split.end(), std::int64_t{0});
    const auto refuse = [&](const std::string& what) {
        return fail(Fault::usage, "--pipeline-split {} {}; give {} numbers with the sum {}, such as {}",
                    fmt::join(split, ","), what, chunks, layers, fmt::join(even_layers(layers, chunks), ","));
    };
    if (given != chunks)
        return refuse(training.virtual_stages == 1
                          ? fmt::format("has {} stage{}, and {} makes {}", given, given == 1 ? "" : "s",
                                        stages.by, chunks)
                          : fmt::format("has {} chunk{}, and {} x {} virtual stages make {}", given,
                                        given == 1 ? "" : "s", stages.by, training.virtual_stages, chunks));
    if (sum != layers) return refuse(fmt::format("has {} layers, and --num-layers is {}", sum, layers));
    return {};
}

// `ranks`: after they were divided by what divides the layers.
Result<void> check_stages(const Asked& stages, std::int64_t ranks, const Options& options) {
    const std::int64_t layers = options.shape.gpt.layers;
    if (stages.size > layers)
        return fail(Fault::usage, "{} is more than --num-layers {}; give {}", stages.by, layers,
                    choices_of(ranks, layers));
    if (ranks % stages.size != 0)
        return fail(Fault::usage, "{} part{} of the ranks cannot be divided by {}; give {}, or more ranks",
                    ranks, ranks == 1 ? "" : "s", stages.by, choices_of(ranks, layers));
    const Settings& training = options.training;
    if (says_micro_batches(options) && training.accumulate < stages.size)
        return fail(Fault::usage,
                    "{} needs at least {} micro-batches a step, and --accumulate is {}; give --accumulate {} "
                    "or more, each of --batch-size samples",
                    stages.by, stages.size, training.accumulate, stages.size);
    if (training.pipeline_schedule != PipelineSchedule::interleaved) return check_split(stages, options);
    if (stages.size * training.virtual_stages > layers)
        return fail(Fault::usage, "{} x {} virtual stages is {}, more than --num-layers {}; give {}",
                    stages.by, training.virtual_stages, stages.size * training.virtual_stages, layers,
                    layers < 2 * stages.size ? "--pipeline-schedule=1f1b"
                                             : fmt::format("--virtual-stages {}", layers / stages.size));
    if (says_micro_batches(options) && training.accumulate % stages.size != 0)
        return fail(
            Fault::usage,
            "--pipeline-schedule=interleaved needs a multiple of {} micro-batches, and --accumulate is "
            "{}; give --accumulate {} or {}",
            stages.size, training.accumulate, training.accumulate / stages.size * stages.size,
            (training.accumulate / stages.size + 1) * stages.size);
    return check_split(stages, options);
}

}  // namespace

Result<void> check_schedule(const Options& options) {
    if (!options.gave("--virtual-stages") ||
        options.training.pipeline_schedule == PipelineSchedule::interleaved)
        return {};
    return fail(Fault::usage, "--virtual-stages needs --pipeline-schedule=interleaved; give both or neither");
}

Result<ModelParallel> choose_parallel(const Options& options, const ModelInfo& info,
                                      const LaunchContext& here, std::int64_t ranks) {
    DP_TRY(check_schedule(options));
    const bool is_step = ranks > 1;
    const Asked tensor = DP_TRY(
        asked("--tensor-parallel", options.tensor_parallel, "--dp-tensor", is_step ? here.tensor_size : 1));
    const Asked stages = DP_TRY(asked("--pipeline-parallel", options.pipeline_parallel, "--dp-pipeline",
                                      is_step ? here.pipeline_size : 1));
    const bool divides_tokens = options.training.sequence_parallel && info.name == "gpt";
    if (tensor.size == 1 && divides_tokens)
        return fail(Fault::usage,
                    "--sequence-parallel divides tokens among the ranks that divide each layer, and none do; "
                    "give --tensor-parallel 2 or more, or leave it out");
    if (stages.size == 1 && !options.training.pipeline_split.layers.empty())
        return fail(Fault::usage,
                    "--pipeline-split with numbers divides layers among the stages of a pipeline, and there "
                    "are none; give "
                    "--pipeline-parallel 2 or more, or leave it out");
    if (tensor.size == 1 && stages.size == 1) return ModelParallel{1, static_cast<std::uint32_t>(ranks), 1};
    const std::string& first = tensor.size > 1 ? tensor.by : stages.by;
    if (info.name != "gpt")
        return fail(Fault::usage, "{} is not divided among ranks; leave {} out, or give --model=gpt",
                    info.name, first);
    if (tensor.size > 1) DP_TRY(check_tensor(tensor, ranks, options.shape.gpt.heads));
    if (divides_tokens) DP_TRY(check_tokens(tensor, options.shape.gpt.sequence));
    if (stages.size > 1) DP_TRY(check_stages(stages, ranks / tensor.size, options));
    DP_TRY(check_others(options, first));
    return ModelParallel::of_world(static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(tensor.size),
                                   static_cast<std::uint32_t>(stages.size));
}

void choose_micro_batches(Options& options, const ModelParallel& parallel) {
    Settings& training = options.training;
    if (parallel.pipeline == 1 || says_micro_batches(options)) return;
    const std::int64_t batch = training.batch, stages = parallel.pipeline;
    std::int64_t micro_batches = std::min(2 * stages, batch);
    while (batch % micro_batches != 0) ++micro_batches;
    training.batch = batch / micro_batches;
    const std::int64_t at_a_time = micro_batches_at_a_time(training, parallel);
    training.accumulate = largest_shard(std::max(micro_batches, stages), at_a_time) * at_a_time;
}

std::int64_t micro_batches_at_a_time(const Settings& training, const ModelParallel& parallel) {
    return training.pipeline_schedule == PipelineSchedule::interleaved ? parallel.pipeline : 1;
}

std::optional<std::string> peer_copy_without_effect(const Options& options, const ModelParallel& parallel) {
    const bool is_divided = parallel.tensor * parallel.pipeline > 1;
    if (!is_divided || !options.gave("--peer-copy") || options.training.peer_copy == 0) return std::nullopt;
    return "--peer-copy does nothing: a part of a divided model dies with its rank, and the training begins "
           "again from its checkpoint; leave it out";
}

double predicted_bubble(const GptShape& shape, const Settings& training) {
    std::vector<ChunkTime> times;
    for (const PassFlops& cost : chunk_costs(shape))
        times.push_back({static_cast<double>(cost.forward), static_cast<double>(cost.backward)});
    return bubble_of(training.passes(0, shape.layout.stages), times);
}

std::vector<std::unique_ptr<Model>> evenly_split(const ModelInfo& info, ModelShape shape,
                                                 const Settings& training) {
    Layout& layout = shape.gpt.layout;
    if (layout.stages == 1) return {};
    const auto now = chunk_layers(shape.gpt);
    layout.split = {.is_even = true, .layers = {}};
    if (chunk_layers(shape.gpt) == now) return {};
    std::vector<std::unique_ptr<Model>> stages;
    for (layout.stage = 0; layout.stage < layout.stages; ++layout.stage) {
        layout.slots = slots_of(training.passes(layout.stage, layout.stages));
        stages.push_back(make_model(info, shape));
        if (stages.back()->parameters().learned_count() == 0) return {};
    }
    return stages;
}

Layout layout_of(const ModelParallel& parallel, std::int64_t rank, const Settings& training) {
    const auto of = [&](Dimension dimension) {
        return std::int64_t{parallel.rank_in(dimension, static_cast<std::uint32_t>(rank))};
    };
    Layout layout{of(Dimension::tensor), parallel.tensor, of(Dimension::pipeline), parallel.pipeline};
    if (layout.stages > 1) {
        layout.chunks = training.virtual_stages;
        layout.slots = slots_of(training.passes(layout.stage, layout.stages));
        layout.split = training.pipeline_split;
    }
    layout.divides_tokens = training.sequence_parallel && layout.divides_layers();
    return layout;
}

}  // namespace dp::trainer
