// SPDX-License-Identifier: Apache-2.0
//
// `trainer info`: parameters, memory and FLOPs of a model, from its declaration and what a device copies; or its roofline.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "trainer/commands/parallel_choice.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/models/pipeline_split.hpp"
#include "trainer/profile/paper_step.hpp"
#include "trainer/profile/roofline.hpp"

namespace dp::trainer {
namespace {

// More parameters are shown by the layer, of which deep models have many of a kind.
constexpr std::size_t kShownEach = 16;

// The device whose copies count; null where it makes none. --device=cuda may mean another machine's GPU.
Result<std::unique_ptr<Device>> copying_device(const Options& options, const Model& model) {
    const bool plain = options.training.precision == Precision::fp32 && model.convolutions().empty();
    if (plain || options.device.choice == DeviceChoice::cuda) return nullptr;
    auto opened = DP_TRY(open_device_of(options, read_launch_context()));
    if (opened.note) fmt::print("{}; --device=cuda shows what a GPU needs\n", *opened.note);
    return std::move(opened.device);
}

// The largest model with the largest batch overflows. A training refuses such a batch for want of samples.
Result<void> check_countable(const ModelInfo& info, const Model& model, std::int64_t batch) {
    const double activations =
        4.0 * static_cast<double>(batch) * static_cast<double>(model.activations_per_sample());
    if (activations <= 0x1p60) return {};
    return fail(Fault::usage,
                "{} with a batch of {} has {:.1e} bytes of activations; give a smaller --batch-size",
                info.name, batch, activations);
}

// "h.*.attn.c_proj" of "h.11.attn.c_proj.weight".
std::string layer_of(const std::string& parameter) {
    std::string layer;
    for (const char c : parameter.substr(0, parameter.rfind('.'))) {
        const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
        if (!is_digit)
            layer += c;
        else if (!layer.ends_with('*'))
            layer += '*';
    }
    return layer;
}

void print_row(std::string_view name, const std::string& what, const std::string& number) {
    fmt::print("  {:<28} {:>17} {:>16}\n", name, what, number);
}

void print_parameters(const ParameterSet& parameters) {
    const auto& all = parameters.all();
    if (all.size() <= kShownEach) {
        for (const auto& one : all)
            print_row(one.name, fmt::format("{}", fmt::join(one.shape, " x ")),
                      std::to_string(elements_of(one.shape)));
        return;
    }
    struct Kind {
        std::string layer;
        std::int64_t tensors, elements;
    };
    std::vector<Kind> kinds;
    for (const auto& one : all) {
        if (elements_of(one.shape) == 0) continue;  // another stage has it
        const std::string layer = layer_of(one.name);
        auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.layer == layer; });
        if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {layer, 0, 0});
        ++kind->tensors;
        kind->elements += elements_of(one.shape);
    }
    for (const Kind& kind : kinds)
        print_row(kind.layer, fmt::format("{} tensor{}", kind.tensors, kind.tensors == 1 ? "" : "s"),
                  std::to_string(kind.elements));
}

void print_needs(const Options& options, const MemoryNeeds& needs) {
    const Settings& training = options.training;
    const auto row = [](const std::string& name, std::int64_t bytes) {
        print_row(name, "", size_text(bytes));
    };
    const std::string precision(name_of(training.precision));
    const std::string of_a_node =
        options.info.ranks_per_node > 1 ? fmt::format(", 1/{} of a node", options.info.ranks_per_node) : "";
    const std::string values =
        training.precision == Precision::fp32 ? "values" : fmt::format("values in fp32 and {}", precision);
    const std::string shared =
        training.shard_optimizer ? fmt::format(", a rank of {}", options.info.ranks) : of_a_node;
    row(values + of_a_node, needs.parameters);
    row("gradients", needs.gradients);
    row(fmt::format("state of {}{}", name_of(training.optimizer), shared), needs.optimizer);
    row(fmt::format("activations, batch {}, {}", training.batch, precision), needs.activations);
    if (needs.copies > 0) row("copies for an operation", needs.copies);
    row("memory, without the data set", needs.total());
}

nlohmann::ordered_json info_json(const Options& options, std::int64_t parameters, const MemoryNeeds& needs,
                                 double flops) {
    const Settings& training = options.training;
    return {{"info", options.model},
            {"parameters", parameters},
            {"batch_size", training.batch},
            {"precision", name_of(training.precision)},
            {"optimizer", name_of(training.optimizer)},
            {"parameters_bytes", needs.parameters},
            {"gradients_bytes", needs.gradients},
            {"optimizer_bytes", needs.optimizer},
            {"activations_bytes", needs.activations},
            {"copies_bytes", needs.copies},
            {"memory_bytes", needs.total()},
            {"flops_per_sample", flops}};
}

constexpr std::int64_t kMostAccumulated = 1000;  // batches, whose operations are kept

// --roofline is of what one GPU does.
Result<void> check_roofline(const Options& options) {
    if (options.training.accumulate > kMostAccumulated)
        return fail(Fault::usage,
                    "--roofline takes at most {} batches in a step; give --accumulate={} or less, not {}",
                    kMostAccumulated, kMostAccumulated, options.training.accumulate);
    for (const char* name : {"--ranks", "--ranks-per-node", "--tensor-parallel", "--pipeline-parallel",
                             "--pipeline-split", "--sequence-parallel"})
        if (options.gave(name))
            return fail(Fault::usage,
                        "--roofline is of one GPU that has the whole model; leave {} out, or see `trainer "
                        "plan`",
                        name);
    if (options.gave("--device") && options.device.choice == DeviceChoice::cpu)
        return fail(Fault::usage,
                    "--roofline is of a GPU; leave --device=cpu out, or measure with `trainer "
                    "measure-performance --per-operation`");
    return {};
}

// What a step takes on a GPU, on paper.
Result<void> show_roofline(const ModelInfo& info, const Options& options, double flops_per_sample,
                           std::int64_t tokens_per_sample) {
    const Settings& training = options.training;
    const DeviceModel& gpu = *find_named(kDeviceModels, options.info.device_model);
    const Type type = type_of(training.precision);
    const Peaks peaks = peaks_of(gpu, type);
    ProfileRecorder recorder(StepRange{1, 1});
    DP_TRY(record_paper_step(info, options.shape, training, recorder));
    const Roofline roofline = roofline_of(recorder, peaks, &gpu, type);
    const auto samples = static_cast<double>(training.batch * training.accumulate);
    const double seconds = roofline.sum.predicted.seconds,
                 mfu = samples * flops_per_sample / seconds / peaks.flops;
    const auto throughput = throughput_of(samples / seconds, tokens_per_sample);
    fmt::print(
        "a step of {} on one {}, on paper: {}, batch {}{}; {:.0f} TFLOP/s, and {:.2f} of {:.2f} "
        "TB/s\n\n{}\n\n",
        info.name, gpu.product, name_of(training.precision), training.batch,
        training.accumulate > 1 ? fmt::format(" x {}", training.accumulate) : "", peaks.flops / 1e12,
        peaks.bytes / 1e12, gpu.memory / 1e12, roofline_text(roofline, false));
    fmt::print("predicted: {:.0f} {}, MFU {:.1f} % ({:.3g} GFLOP a sample)\n", throughput.rate,
               throughput.unit, 100 * mfu, flops_per_sample / 1e9);
    fmt::print("{}\n", nlohmann::ordered_json{{"roofline", options.model},
                                              {"device_model", gpu.name},
                                              {"batch_size", training.batch},
                                              {"accumulate", training.accumulate},
                                              {"precision", name_of(training.precision)},
                                              {"step_seconds", seconds},
                                              {"floor_seconds", roofline.sum.floor.seconds},
                                              {"samples_per_second", samples / seconds},
                                              {"flops_per_sample", flops_per_sample},
                                              {"mfu", mfu},
                                              {"operations", roofline_json(roofline, false)}}
                           .dump());
    return {};
}

}  // namespace

Result<void> info(const Options& as_given) {
    const Options given = sized_by_weights(as_given);
    if (given.info.ranks_per_node > 1 && given.device.choice == DeviceChoice::cuda)
        return fail(
            Fault::usage,
            "--ranks-per-node with --device=cuda: each rank on a GPU has its own parameters; leave it out");
    const auto choice = DP_TRY(choose_model(given, has_images(given)));
    if (choice.reason) fmt::print("{}\n", *choice.reason);
    const ModelInfo& chosen = *choice.info;
    Options options = completed(given, chosen);
    const auto vocabulary = DP_TRY(vocabulary_for(options));
    DP_TRY(fit(options, vocabulary));
    DP_TRY(choose_documents(options));
    if (options.info.roofline) {
        DP_TRY(check_roofline(options));
        const auto whole = make_model(chosen, options.shape);
        DP_TRY(check_countable(chosen, *whole, options.training.batch));
        return show_roofline(chosen, options, 3 * whole->forward_flops_per_sample(),
                             chosen.data == DataSet::tokens ? whole->targets_per_sample() : 0);
    }
    const auto parallel = DP_TRY(choose_parallel(options, chosen, {}, options.info.ranks));
    choose_micro_batches(options, parallel);
    const std::int64_t sharing = options.info.ranks_per_node =
        std::clamp<std::int64_t>(options.info.ranks_per_node / parallel.tensor, 1, parallel.data);
    std::unique_ptr<Model> model;  // of the stage that needs most
    std::unique_ptr<Device> device;
    MemoryNeeds needs;
    options.shape.gpt.layout = layout_of(parallel, 0, options.training);
    for (const std::int64_t stage : largest_stages(options.shape.gpt)) {
        options.shape.gpt.layout =
            layout_of(parallel, stage * parallel.stride(Dimension::pipeline), options.training);
        auto of_stage = make_model(chosen, options.shape);
        DP_TRY(check_countable(chosen, *of_stage, options.training.batch));
        if (!device) device = DP_TRY(copying_device(options, *of_stage));
        // The data set is not opened for this.
        const MemoryNeeds these =
            estimate_memory({*of_stage, options.training, nullptr, parallel.data, device.get(), sharing});
        if (model && these.total() <= needs.total()) continue;
        model = std::move(of_stage);
        needs = these;
    }
    const std::int64_t count = model->parameters().whole_count();
    // The backward pass costs twice the forward pass: gradients of inputs and of weights.
    const double flops = 3 * model->forward_flops_per_sample();
    fmt::print("{}: {}\n\n", chosen.name, chosen.summary);
    print_parameters(model->parameters());
    fmt::print("\n");
    print_row("parameters", "", std::to_string(count));
    if (const auto trained = trained_count(model->parameters()); trained < count)
        print_row("of these trained", "", std::to_string(trained));
    print_needs(options, needs);
    print_row("per sample, both passes", "", fmt::format("{:.3f} MFLOP", flops / 1e6));
    print_row("per step and rank", "",
              fmt::format("{:.3f} MFLOP", flops * static_cast<double>(options.training.batch) / 1e6));
    fmt::print("{}\n", info_json(options, count, needs, flops).dump());
    return {};
}

}  // namespace dp::trainer
