// SPDX-License-Identifier: Apache-2.0
//
// `trainer plan`: in which ways ranks can divide gpt, and how long a step then takes, by what this machine was measured to do or by
// what is written of a GPU.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "trainer/base/random.hpp"
#include "trainer/commands/parallel_choice.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/commands/shape_prediction.hpp"
#include "trainer/compile/peaks.hpp"
#include "trainer/devices/operation_log.hpp"
#include "trainer/memory/available.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/models/pipeline_split.hpp"

namespace dp::trainer {
namespace {

constexpr std::size_t kShown = 12;
constexpr int kTries = 3;
constexpr std::int64_t kMostHere = 4096;  // ranks of a node

struct Planned {
    Division division;
    StepSeconds step;
    MemoryNeeds needs;  // of the stage that needs most
    bool divides_tokens = false;
    std::vector<std::int64_t> layers = {};  // of each model chunk
};

// Seconds of both passes of a batch of this many samples.
Result<double> time_passes(const GptShape& shape, std::int64_t rows, Device& device) {
    const auto model = make_gpt({.gpt = shape});
    model->place(device, 1, rows);
    Random random(1, 0);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows * shape.sequence));
    for (auto& token : tokens)
        token = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(shape.vocabulary)));
    const Tensor text = device.copy_of<std::int32_t>(Type::i32, {rows, shape.sequence}, tokens);
    const Tensor metrics = device.make(Type::f64, {2});
    double fastest = 0;
    for (int i = 0; i <= kTries; ++i) {  // the first does not count
        DP_TRY(device.status());
        const std::int64_t begin = steady_nanoseconds();
        model->forward_backward({text, text}, 1, metrics);
        device.synchronize();
        const double seconds = 1e-9 * static_cast<double>(steady_nanoseconds() - begin);
        if (i == 1 || (i > 1 && seconds < fastest)) fastest = seconds;
    }
    DP_TRY(device.status());
    return fastest;
}

// By models with one layer and with two: the difference is a layer.
Result<PassSeconds> measure_passes(GptShape shape, std::int64_t rows, Device& device) {
    shape.layers = 1;
    const double one = DP_TRY(time_passes(shape, rows, device));
    shape.layers = 2;
    const double two = DP_TRY(time_passes(shape, rows, device));
    const double layer = std::max(two - one, 0.0), samples = static_cast<double>(rows);
    return PassSeconds{layer / samples, std::max(one - layer, 0.0) / samples};
}

// Ranks of a node share its memory, which their sums go through; between nodes is what --network-bandwidth says.
Result<Hardware> measure_hardware(const Options& options, const LaunchContext& here, Device& device) {
    const std::int64_t ranks = options.plan.ranks_per_node;
    const auto peaks = measure_peaks(device, Type::f32, 1);
    if (!peaks)
        return fail(Fault::device,
                    "no memory to measure what this machine does; give --hardware=h100, or free some");
    Hardware hardware;
    hardware.name = device.description();
    hardware.ranks_per_node = ranks;
    hardware.shares_memory = true;
    hardware.memory = options.device.memory_limit.value_or(available_here(device, here));
    hardware.memory_rate = peaks->bytes / static_cast<double>(ranks);
    hardware.node_rate =
        hardware.memory_rate / 2;  // a number is read where it is, and written where it is wanted
    hardware.network_rate = options.plan.network_bandwidth * 1e9 / 8;
    hardware.node_latency = 5e-6;
    hardware.network_latency = 50e-6;
    return hardware;
}

// Whether there is something to learn on each stage; adapters are of whole models.
bool can_train(const Division& division, const ModelInfo& info, Options options) {
    if (division.ranks.tensor * division.ranks.pipeline == 1) return true;
    if (options.shape.gpt.lora_rank > 0) return false;
    if (options.training.sequence_parallel && options.shape.gpt.sequence % division.ranks.tensor != 0)
        return false;
    if (options.shape.freeze.empty()) return true;
    for (std::int64_t stage = 0; stage < division.ranks.pipeline; ++stage) {
        options.shape.gpt.layout =
            layout_of(division.ranks, stage * division.ranks.stride(Dimension::pipeline), options.training);
        if (make_model(info, options.shape)->parameters().learned_count() == 0) return false;
    }
    return true;
}

Planned plan_of(const Division& division, const ModelInfo& info, Options options, const PassSeconds& passes,
                const Hardware& hardware) {
    Planned planned{.division = division, .step = {}, .needs = {}};
    options.training.batch = division.batch;
    options.training.accumulate = division.micro_batches;
    std::int64_t parameters = 0;
    const std::int64_t stride = division.ranks.stride(Dimension::pipeline),
                       sharing = sharing_of(division.ranks, hardware);
    options.shape.gpt.layout = layout_of(division.ranks, 0, options.training);
    planned.divides_tokens = options.shape.gpt.layout.divides_tokens;
    planned.layers = chunk_layers(options.shape.gpt);
    for (const std::int64_t stage : largest_stages(options.shape.gpt)) {
        options.shape.gpt.layout = layout_of(division.ranks, stage * stride, options.training);
        const auto model = make_model(info, options.shape);
        parameters = std::max(parameters, model->parameters().learned_count());
        const MemoryNeeds needs =
            estimate_memory({*model, options.training, nullptr, division.ranks.data, nullptr, sharing});
        if (needs.total() > planned.needs.total()) planned.needs = needs;
    }
    planned.step = predict_step(division, options.shape.gpt, passes, hardware, parameters,
                                static_cast<std::int64_t>(size_of(type_of(options.training.precision))),
                                options.training.pipeline_schedule);
    return planned;
}

std::string row_of(const Planned& one, double samples) {
    const auto& [ranks, batch, micro_batches] = one.division;
    const StepSeconds& step = one.step;
    const auto part = [&](double seconds) { return fmt::format("{:>9.1f}", 100 * seconds / step.total()); };
    return fmt::format("{:>6} {:>8} {:>5} {:>6} {:>7} {:>10} {:>10.4g} {:>11.4g}{}{}{}{}{}", ranks.tensor,
                       ranks.pipeline, ranks.data, batch, micro_batches, size_text(one.needs.total()),
                       step.total(), samples / step.total(), part(step.compute), part(step.bubble),
                       part(step.tensor + step.messages), part(step.gradients), part(step.optimizer));
}

// How the stages work, where not by default.
std::string pipeline_words(const Settings& training) {
    std::string words = training.pipeline_split.is_even ? " --pipeline-split=even" : "";
    if (training.pipeline_schedule != PipelineSchedule::one_forward_one_backward)
        words += fmt::format(" --pipeline-schedule={}", name_of(training.pipeline_schedule));
    if (training.virtual_stages > 1) words += fmt::format(" --virtual-stages={}", training.virtual_stages);
    return words;
}

nlohmann::ordered_json json_of_way(const Planned& way, double samples) {
    const auto& [ranks, batch, micro_batches] = way.division;
    return {{"tensor_parallel", ranks.tensor},
            {"pipeline_parallel", ranks.pipeline},
            {"pipeline_layers", way.layers},
            {"sequence_parallel", way.divides_tokens},
            {"data_parallel", ranks.data},
            {"batch_size", batch},
            {"accumulate", micro_batches},
            {"memory_bytes", way.needs.total()},
            {"step_seconds", way.step.total()},
            {"samples_per_second", samples / way.step.total()},
            {"bubble", way.step.bubble / way.step.total()}};
}

// Of those that the table shows.
nlohmann::ordered_json json_of_plan(std::span<const Planned> ways, double samples, const Hardware& hardware) {
    const ModelParallel& ranks = ways.front().division.ranks;
    nlohmann::ordered_json json{{"plan", "gpt"},
                                {"hardware", hardware.name},
                                {"ranks", std::int64_t{ranks.tensor} * ranks.data * ranks.pipeline}};
    json.update(json_of_way(ways.front(), samples));
    for (const Planned& way : ways) json["ways"].push_back(json_of_way(way, samples));
    return json;
}

}  // namespace

Result<void> plan(const Options& as_given) {
    const Options given = sized_by_weights(as_given);
    const ModelInfo& info = *find_model("gpt");
    if (!given.model.empty() && given.model != info.name)
        return fail(Fault::usage,
                    "{} is not divided among ranks, so there is nothing to plan; give --model=gpt",
                    given.model);
    if (!given.training.pipeline_split.layers.empty())
        return fail(Fault::usage,
                    "--pipeline-split: trainer plan divides the layers among any number of stages; give "
                    "balanced or even");
    DP_TRY(check_schedule(given));
    Options options = completed(given, info);
    const auto vocabulary = DP_TRY(vocabulary_for(options));
    DP_TRY(fit(options, vocabulary));
    DP_TRY(choose_documents(options));
    const std::int64_t ranks = options.plan.ranks,
                       global_batch = options.training.batch * options.training.accumulate * ranks;
    LaunchContext here = read_launch_context();
    here.local_size = static_cast<int>(std::min<std::int64_t>(options.plan.ranks_per_node, kMostHere));
    std::optional<Hardware> hardware = hardware_named(options.plan.hardware);
    PassSeconds passes;
    if (hardware) {
        options.training.precision = Precision::bf16;
        passes = passes_on_paper(options.shape.gpt);
        if (options.device.memory_limit) hardware->memory = *options.device.memory_limit;
    } else {
        options.device.choice = DeviceChoice::cpu;
        const auto opened = DP_TRY(open_device_of(options, here));
        passes = DP_TRY(measure_passes(options.shape.gpt, options.training.batch, *opened.device));
        hardware = DP_TRY(measure_hardware(options, here, *opened.device));
    }
    std::vector<Planned> fitting;
    std::optional<Planned> smallest;
    for (const Division& one :
         divisions_of(options.shape.gpt, ranks, global_batch, options.training.virtual_stages)) {
        if (!can_train(one, info, options)) continue;
        Planned planned = plan_of(one, info, options, passes, *hardware);
        if (!smallest || planned.needs.total() < smallest->needs.total()) smallest = planned;
        if (planned.needs.total() > hardware->memory) continue;
        const auto other =
            std::ranges::find(fitting, one.ranks, [](const Planned& it) { return it.division.ranks; });
        if (other == fitting.end())
            fitting.push_back(std::move(planned));
        else if (planned.step.total() < other->step.total())
            *other = std::move(planned);
    }
    if (!smallest)
        return fail(Fault::usage,
                    "--ranks {} cannot divide gpt with {} heads and {} layers; give another number", ranks,
                    options.shape.gpt.heads, options.shape.gpt.layers);
    if (fitting.empty())
        return fail(Fault::device,
                    "no way to divide gpt among --ranks {} fits {} a rank: the smallest needs {}; give more "
                    "--ranks, a "
                    "smaller --batch-size, --shard-optimizer, --recompute or --pipeline-split=even",
                    ranks, size_text(hardware->memory), size_text(smallest->needs.total()));
    std::ranges::sort(fitting, {}, [](const Planned& one) { return one.step.total(); });

    const auto samples = static_cast<double>(global_batch);
    fmt::print("gpt on {} ranks ({}), {} a rank, global batch {}: the ways that fit, by predicted time\n\n",
               ranks, hardware->name, size_text(hardware->memory), global_batch);
    fmt::print("{:>6} {:>8} {:>5} {:>6} {:>7} {:>10} {:>10} {:>11}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "tensor",
               "pipeline", "data", "batch", "accum.", "memory", "seconds", "samples/s", "compute%", "bubble%",
               "layers%", "grads%", "optim.%");
    const std::span shown = std::span(fitting).first(std::min(fitting.size(), kShown));
    for (const Planned& way : shown) fmt::print("{}\n", row_of(way, samples));
    const Division& best = shown.front().division;
    if (options.plan.hardware != kHere && best.ranks.tensor * best.ranks.pipeline > 1)
        fmt::print("\nOn paper: this trainer has not divided a model on a GPU yet, only on emulated ones.\n");
    fmt::print("\n--tensor-parallel={}{} --pipeline-parallel={}{} --batch-size={} --accumulate={}\n",
               best.ranks.tensor, shown.front().divides_tokens ? " --sequence-parallel" : "",
               best.ranks.pipeline, best.ranks.pipeline > 1 ? pipeline_words(options.training) : "",
               best.batch, best.micro_batches);
    fmt::print("{}\n", json_of_plan(shown, samples, *hardware).dump());
    return {};
}

}  // namespace dp::trainer
