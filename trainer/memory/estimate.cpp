// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory/estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trainer/base/partition.hpp"
#include "trainer/training/optimizer.hpp"
#include "trainer/training/schedule.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kNumber = sizeof(float);  // of what is f32 in any precision
constexpr std::int64_t kExchange =
    6 << 20;  // of ranks that divide a model: its parts, for checkpoints and at the end
constexpr std::int64_t kSums = 16 << 10;  // of losses and of squares of gradients

std::int64_t bytes_of(const Matrix& matrix) {
    return static_cast<std::int64_t>(matrix.bytes.size());
}

// Each rank holds all training samples and its part of the test samples, and gathers batches of both. Of the
// larger batch the features are an activation, and counted there. Of streamed samples there are only the batches.
std::int64_t data_bytes(const Dataset& data, std::int64_t batch, std::int64_t test_batch, std::int64_t world,
                        Type type) {
    constexpr std::int64_t kIndex = sizeof(std::int32_t);
    const std::int64_t tests = largest_shard(data.test.count, world);
    const std::int64_t test_bytes = bytes_of(data.test.features) + bytes_of(data.test.targets);
    const Matrix& targets = data.train.targets;
    // Of streamed images a batch as it is stored, and its places.
    const auto staged = [&](const Split& samples, std::int64_t rows) {
        if (!samples.streamed || !samples.streamed->images) return std::int64_t{0};
        return rows *
               (samples.features.columns * static_cast<std::int64_t>(size_of(samples.features.type)) +
                samples.targets.columns * static_cast<std::int64_t>(size_of(samples.targets.type)) + kIndex);
    };
    return staged(data.train, batch) + staged(data.test, test_batch) + bytes_of(data.train.features) +
           bytes_of(data.train.targets) + (data.test.count > 0 ? test_bytes / data.test.count * tests : 0) +
           ((data.train.streamed ? 0 : data.train.count / world) + (data.test.streamed ? 0 : tests)) *
               kIndex +
           (batch + test_batch) * targets.columns *
               static_cast<std::int64_t>(size_of(gathered_type(targets.type))) +
           std::min(batch, test_batch) * data.train.features.columns *
               static_cast<std::int64_t>(size_of(gathered_type(data.train.features.type, type)));
}

// What a device has twice for the time of an operation.
std::int64_t copies_bytes(const Model& model, const Device& device, std::int64_t rows, Type type) {
    std::int64_t bytes = device.workspace_bytes() + model.convolution_scratch(device, rows, type);
    if (type != Type::f32 && device.copies_bf16()) bytes += model.widest_operation(rows) * kNumber;
    return bytes;
}

// Whether the sum of gradients is separate from them, once for a node (TrainStep::adds_in_order_).
bool adds_in_order(const Model& model, const Device* device, std::int64_t world) {
    return world > 1 && !model.is_stage() && device != nullptr && device->is_deterministic() &&
           device->name() == "cpu";
}

}  // namespace

MemoryNeeds estimate_memory(const MemoryCase& c) {
    const auto& [model, settings, data, world, device, sharing, recomputing, evenly] = c;
    const std::int64_t padded = model.parameters().padded_count(), parameters = padded * kNumber,
                       learned = model.parameters().learned_count(), gradients = learned * kNumber;
    std::int64_t buffers = 0;
    for (const Buffer& buffer : model.parameters().all_buffers())
        buffers += elements_of(buffer.shape) * kNumber;
    const std::int64_t test_batch = test_batch_of(model, settings.batch);
    MemoryNeeds needs;
    const Type type = type_of(settings.precision);
    const auto flowing = static_cast<std::int64_t>(size_of(type));
    needs.parameters = largest_shard(parameters, sharing) + buffers;
    if (type != Type::f32) needs.parameters += largest_shard(padded * flowing, sharing);
    needs.parameters += model.parameters().merged_bytes(type);
    needs.gradients = gradients + model.parameters().unread_count() * kNumber;
    if (adds_in_order(model, device, world))
        needs.gradients += largest_shard(gradients, sharing);
    else if (settings.accumulate > 1)
        needs.gradients += gradients;
    const std::int64_t state = state_per_parameter(settings.optimizer) + (settings.ema_decay ? 1 : 0),
                       scratch = settings.ema_decay ? kAverageScratch * kNumber : 0;
    needs.optimizer = scratch + state * (settings.shard_optimizer ? largest_shard(learned, world) * kNumber
                                                                  : largest_shard(gradients, sharing));
    // A copy of another rank's part: values and the optimizer's state. On GPUs also one of this rank's own values.
    if (settings.shard_optimizer && settings.peer_copy > 0 && world > 1) {
        const bool keeps_own = device != nullptr && device->name() == "cuda";
        needs.optimizer +=
            scratch + (1 + state + (keeps_own ? 1 : 0)) * largest_shard(learned, world) * kNumber;
    }
    if (sharing > 1) needs.shared = settings.shard_optimizer ? "parameters" : "parameters and optimizer";
    const std::int64_t rows = std::max(settings.batch, test_batch);
    const std::int64_t statistics = rows * model.statistics_per_sample();
    const std::int64_t numbers = rows * model.activations_per_sample() - statistics + model.scratch(rows);
    needs.activations = numbers * flowing + statistics * kNumber + kSums;
    if (model.parameters().count() < model.parameters().whole_count()) needs.activations += kExchange;
    if (settings.checkpoints.is_async && device != nullptr && device->name() == "cpu")
        needs.checkpoint = largest_shard(padded + state * learned, world) * kNumber;
    if (device != nullptr) needs.copies = copies_bytes(model, *device, rows, type);
    if (data != nullptr) needs.data = data_bytes(*data, settings.batch, test_batch, world, type);
    return needs;
}

std::string size_text(std::int64_t bytes) {
    constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    auto size = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string needs_text(const MemoryNeeds& needs) {
    const std::string shared =
        needs.shared.empty() ? "" : fmt::format("; the ranks of a node share {}", needs.shared);
    const std::string copies = needs.copies == 0 ? "" : fmt::format(", copies {}", size_text(needs.copies));
    const std::string checkpoint =
        needs.checkpoint == 0 ? "" : fmt::format(", checkpoint copy {}", size_text(needs.checkpoint));
    return fmt::format("{} (parameters {}, gradients {}, optimizer {}, activations {}{}, data {}{}{})",
                       size_text(needs.total()), size_text(needs.parameters), size_text(needs.gradients),
                       size_text(needs.optimizer), size_text(needs.activations), copies,
                       size_text(needs.data), checkpoint, shared);
}

std::int64_t saved_by_sharing(const MemoryCase& c) {
    MemoryCase alone = c;
    alone.sharing = 1;
    return estimate_memory(alone).total() - estimate_memory(c).total();
}

std::string batch_advice(const MemoryCase& c, std::int64_t available) {
    const auto fits = [&](const Model& model, const Settings& settings) {
        return estimate_memory({model, settings, c.data, c.world, c.device, c.sharing}).total() <= available;
    };
    const auto fits_with = [&](std::int64_t batch, std::int64_t accumulate) {
        Settings other = c.settings;
        other.batch = batch;
        other.accumulate = accumulate;
        // The model has been made for so many micro-batches at a time.
        const bool keeps_more =
            c.model.is_stage() && other.pipeline_schedule != PipelineSchedule::one_forward_one_backward;
        return (!keeps_more || accumulate == c.settings.accumulate) && fits(c.model, other);
    };
    const std::int64_t batch = c.settings.batch, accumulate = c.settings.accumulate;
    Settings sharded = c.settings;
    sharded.shard_optimizer = true;
    std::string besides;
    if (c.world > 1 && !c.settings.shard_optimizer && fits(c.model, sharded))
        besides += fmt::format("; with --shard-optimizer a batch of {} fits, too", batch);
    if (c.recomputing != nullptr && fits(*c.recomputing, c.settings))
        besides += fmt::format("; with --recompute a batch of {} fits, too, and takes longer", batch);
    const auto fits_too = [&](const std::unique_ptr<Model>& stage) { return fits(*stage, c.settings); };
    const auto evenly = c.evenly ? c.evenly() : std::vector<std::unique_ptr<Model>>();
    if (!evenly.empty() && std::ranges::all_of(evenly, fits_too))
        besides += fmt::format("; with --pipeline-split=even a batch of {} fits, too", batch);
    if (batch == 1 || !fits_with(1, accumulate))
        return "not even 1 fits; take a device with more memory, a smaller model or a smaller data set" +
               besides;
    // More samples need more memory, so what fits is a range that begins at 1.
    std::int64_t largest = 1;
    for (std::int64_t too_large = batch; too_large - largest > 1;) {
        const std::int64_t middle = largest + (too_large - largest) / 2;
        (fits_with(middle, accumulate) ? largest : too_large) = middle;
    }
    std::string advice = fmt::format("{} is the largest that fits", largest);
    const std::int64_t samples = batch * accumulate;
    std::int64_t part = largest;
    while (part > 0 && (samples % part != 0 || !fits_with(part, samples / part))) --part;
    if (part > 0)
        advice +=
            fmt::format("; --batch-size {} --accumulate {} keeps the global batch", part, samples / part);
    return advice + besides;
}

std::optional<std::string> memory_problem(std::string_view name, const MemoryCase& c, std::string_view device,
                                          std::int64_t available) {
    const MemoryNeeds needs = estimate_memory(c);
    if (needs.total() <= available) return std::nullopt;
    return fmt::format(
        "{} with a batch of {} needs {} per rank, but {} has {}; give a smaller --batch-size: {}", name,
        c.settings.batch, needs_text(needs), device, size_text(available), batch_advice(c, available));
}

}  // namespace dp::trainer
