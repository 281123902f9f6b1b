// SPDX-License-Identifier: Apache-2.0
//
// `trainer info`: parameters, memory and FLOPs of a model, from its declaration alone. No memory of a
// training is allocated, and a device is opened only where it must be asked what it copies.
#include <fmt/format.h>

#include "trainer/commands/run.hpp"
#include "trainer/memory/estimate.hpp"
#include "trainer/parallel/surroundings.hpp"

namespace dp::trainer {
namespace {

// The device whose copies count; null where it makes none. Memory of another machine's GPU is asked for by
// name, with --device=cuda.
Result<std::unique_ptr<Device>> copying_device(const Options& options, const Model& model) {
    const bool plain = options.precision == Precision::fp32 && model.convolutions().empty();
    if (plain || options.device == DeviceChoice::cuda) return nullptr;
    const Surroundings here = gather_surroundings();
    auto opened = open_device(options.device, here.gpu, threads_for(here));
    if (!opened) return tl::make_unexpected(opened.error());
    if (opened->note) fmt::print("{}; --device=cuda shows what a GPU needs\n", *opened->note);
    return std::move(opened->device);
}

// Of a batch's activations, in bytes: the largest model takes more with the largest batch than a number here
// can be. A training has refused such a batch before, for want of samples.
constexpr double kCountable = 0x1p60;

}  // namespace

Result<void> info(const Options& options) {
    if (options.info_ranks_per_node > 1 && options.device == DeviceChoice::cuda)
        return fail(Fault::usage,
                    "--ranks-per-node with --device=cuda: ranks on GPUs have parameters each; leave it out");
    const auto choice = choose_model(options, has_fashion_mnist(options.data_directory));
    if (!choice) return tl::make_unexpected(choice.error());
    if (choice->reason) fmt::print("{}\n", *choice->reason);
    const auto& chosen = *choice->info;
    const Settings settings = settings_for(options, chosen);
    const auto shape = shape_of(options.shape, chosen.name, std::nullopt);
    if (!shape) return tl::make_unexpected(shape.error());
    const auto model = chosen.make(*shape);
    if (const double activations =
            4.0 * static_cast<double>(settings.batch) * static_cast<double>(model->activations_per_sample());
        activations > kCountable)
        return fail(Fault::usage,
                    fmt::format("{} with a batch of {} has {:.1e} bytes of activations; give a smaller "
                                "--batch-size",
                                chosen.name, settings.batch, activations));

    fmt::print("{}: {}\n\n", chosen.name, chosen.summary);
    for (const auto& parameter : model->parameters().all()) {
        fmt::print("  {:<28} {:>12} {:>10}\n", parameter.name,
                   fmt::format("{}", fmt::join(parameter.shape, " x ")), elements_of(parameter.shape));
    }
    const std::int64_t count = model->parameters().count();
    // The data set is not opened for this.
    const auto device = copying_device(options, *model);
    if (!device) return tl::make_unexpected(device.error());
    const MemoryNeeds needs = estimate_memory(*model, settings, nullptr, options.info_ranks, device->get(),
                                              options.info_ranks_per_node);
    // The backward pass costs twice the forward pass: gradients of inputs and of weights.
    const double flops = 3 * model->forward_flops_per_sample();
    fmt::print("\n  {:<28} {:>23}\n", "parameters", count);
    const auto row = [](const std::string& name, std::int64_t bytes) {
        fmt::print("  {:<28} {:>23}\n", name, size_text(bytes));
    };
    const std::string precision(name_of(settings.precision));
    const std::string of_a_node =
        options.info_ranks_per_node > 1 ? fmt::format(", 1/{} of a node", options.info_ranks_per_node) : "";
    const std::string values =
        settings.precision == Precision::fp32 ? "values" : fmt::format("values in fp32 and {}", precision);
    row(values + of_a_node, needs.parameters);
    row("gradients", needs.gradients);
    const std::string shared =
        settings.shard_optimizer ? fmt::format(", a rank of {}", options.info_ranks) : of_a_node;
    row(fmt::format("state of {}{}", name_of(settings.optimizer), shared), needs.optimizer);
    row(fmt::format("activations, batch {}, {}", settings.batch, precision), needs.activations);
    if (needs.copies > 0) row("copies for an operation", needs.copies);
    row("memory, without the data set", needs.total());
    fmt::print("  {:<28} {:>16.3f} MFLOP\n", "a sample, both passes", flops / 1e6);
    fmt::print("  {:<28} {:>16.3f} MFLOP\n", "a step of a rank",
               flops * static_cast<double>(settings.batch) / 1e6);
    return {};
}

}  // namespace dp::trainer
