// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/profile.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace dp::trainer {
namespace {

constexpr std::size_t kLargest = 8;  // allocations that are named

bool is_loss(Operation operation) {
    return operation == Operation::softmax_cross_entropy || operation == Operation::squared_error ||
           operation == Operation::sigmoid_dice;
}

// Those that either pass has: a transposed convolution is the gradient of another.
bool is_of_either(Operation operation) {
    switch (operation) {
        case Operation::zero:
        case Operation::convolve:
        case Operation::convolve_backward_input:
        case Operation::copy_columns:
        case Operation::convert:
        case Operation::add:
        case Operation::scale:
        case Operation::dropout:
        case Operation::download:
            return true;
        default:
            return false;
    }
}

bool is_backward(Operation operation) {
    return name_of(operation).find("_backward") != std::string_view::npos ||
           operation == Operation::sum_channels;
}

double seconds_of(const LoggedOperation& one) {
    return 1e-9 * static_cast<double>(one.end - one.begin);
}

void add(ProfileRow& row, const LoggedOperation& one, Part part, const std::optional<Peaks>& peaks,
         double weight) {
    row.calls += weight;
    row.seconds[static_cast<std::size_t>(part)] += weight * seconds_of(one);
    row.flops += weight * one.flops;
    row.bytes += weight * one.bytes;
    if (peaks) row.least += weight * std::max(one.flops / peaks->flops, one.bytes / peaks->bytes);
}

std::vector<ProfileRow> sorted(const std::map<std::string, ProfileRow>& rows) {
    std::vector<ProfileRow> all;
    for (const auto& [name, row] : rows) {
        all.push_back(row);
        all.back().name = name;
    }
    std::ranges::stable_sort(all, std::greater(), &ProfileRow::total);
    return all;
}

// Of what an operation's tensor is, as far as the operation tells.
std::optional<MemoryKind> kind_by(Operation operation, std::size_t argument) {
    if (operation == Operation::gather) return MemoryKind::data;
    if (operation != Operation::sgd && operation != Operation::adam) return std::nullopt;
    return argument == 0 || argument == 4 ? MemoryKind::parameters
           : argument == 1                ? MemoryKind::gradients
                                          : MemoryKind::optimizer;
}

std::vector<ProfiledMemory> memories_of(const OperationLog& log, std::span<const LoggedOperation> step) {
    std::map<std::uint32_t, ProfiledMemory> found;
    std::map<std::uint32_t, MemoryKind> kinds;
    const auto last = static_cast<std::uint32_t>(step.size() - 1);
    for (std::uint32_t at = 0; at <= last; ++at)
        for (std::uint32_t i = 0; i < step[at].uses; ++i) {
            const auto& [number, access, bytes] = log.uses()[step[at].first_use + i];
            const LoggedMemory& memory = log.memories()[number];
            // What is read before it is written is from the step before.
            const bool is_kept = access != Access::write;
            const auto [one, is_new] = found.try_emplace(
                number, ProfiledMemory{memory.bytes, MemoryKind::activations, log.owners()[memory.owner],
                                       is_kept ? 0 : at, is_kept ? last : at});
            if (!is_new) one->second.last = std::max(one->second.last, at);
            if (const auto kind = kind_by(step[at].operation, i)) kinds[number] = *kind;
        }
    std::vector<ProfiledMemory> all;
    for (auto& [number, one] : found) {
        const auto kind = kinds.find(number);
        if (kind != kinds.end())
            one.kind = kind->second;
        else if (const auto named = log.memories()[number].named)
            one.kind = *named == Named::gradient ? MemoryKind::gradients : MemoryKind::parameters;
        if (one.kind != MemoryKind::activations) one.layer.clear();
        all.push_back(one);
    }
    return all;
}

MemoryProfile memory_of(const OperationLog& log, std::span<const LoggedOperation> step) {
    MemoryProfile profile;
    if (step.empty()) return profile;
    const auto all = memories_of(log, step);
    profile.curve.resize(step.size());
    for (const ProfiledMemory& one : all) {
        const auto kind = static_cast<std::size_t>(one.kind);
        profile.kinds[kind] += one.bytes;
        for (std::uint32_t at = one.first; at <= one.last; ++at) profile.curve[at][kind] += one.bytes;
    }
    std::int64_t most = -1;
    for (std::size_t at = 0; at < profile.curve.size(); ++at) {
        const auto& now = profile.curve[at];
        const std::int64_t bytes = std::accumulate(now.begin(), now.end(), std::int64_t{0});
        if (bytes <= most) continue;
        most = bytes;
        profile.peak = at;
    }
    profile.peak_operation = name_of(step[profile.peak].operation);
    profile.peak_layer = log.owners()[step[profile.peak].owner];
    for (const ProfiledMemory& one : all)
        if (one.first <= profile.peak && profile.peak <= one.last) profile.largest.push_back(one);
    std::ranges::stable_sort(profile.largest, std::greater(), &ProfiledMemory::bytes);
    if (profile.largest.size() > kLargest) profile.largest.resize(kLargest);
    return profile;
}

}  // namespace

std::string_view name_of(Part part) {
    static constexpr std::array<std::string_view, kParts.size()> kNames{"load", "forward", "backward",
                                                                        "optimizer", "communication"};
    return kNames[static_cast<std::size_t>(part)];
}

std::string_view name_of(MemoryKind kind) {
    static constexpr std::array<std::string_view, kMemoryKinds.size()> kNames{
        "parameters", "gradients", "optimizer", "activations", "data"};
    return kNames[static_cast<std::size_t>(kind)];
}

std::vector<Part> parts_of(std::span<const LoggedOperation> step) {
    std::vector<Part> parts;
    // Before the first batch, sums are made zero; behind the optimizer, values are rounded.
    Part now = Part::optimizer;
    for (const LoggedOperation& one : step) {
        const Operation operation = one.operation;
        if (operation == Operation::gather) now = Part::forward;
        if (operation == Operation::sgd || operation == Operation::adam ||
            operation == Operation::square_sum || operation == Operation::clip)
            now = Part::optimizer;
        Part part = now;
        if (operation == Operation::gather || operation == Operation::upload)
            part = Part::load;
        else if (operation >= Operation::all_reduce)
            part = Part::communication;
        else if (now != Part::optimizer && !is_of_either(operation))
            part = is_backward(operation) ? Part::backward : Part::forward;
        parts.push_back(part);
        if (is_loss(operation)) now = Part::backward;
    }
    return parts;
}

double ProfileRow::total() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::optional<double> ProfileRow::share_of_peak() const {
    if (least == 0 || total() == 0) return std::nullopt;
    return std::min(least / total(), 1.0);
}

std::int64_t MemoryProfile::peak_bytes() const {
    return curve.empty() ? 0 : std::accumulate(curve[peak].begin(), curve[peak].end(), std::int64_t{0});
}

Profile profile_of(const ProfileRecorder& recorder, const std::optional<Peaks>& peaks) {
    Profile profile;
    profile.steps = recorder.range();
    profile.median_without = recorder.seconds_without();
    profile.overhead = recorder.overhead();
    profile.peaks = peaks;
    const OperationLog& log = recorder.log();
    const double weight = 1 / static_cast<double>(std::max<std::size_t>(recorder.steps().size(), 1));
    std::map<std::string, ProfileRow> operations, layers;
    for (const RecordedStep& step : recorder.steps()) {
        const std::span<const LoggedOperation> all =
            std::span(log.operations()).subspan(step.first, step.operations);
        const auto parts = parts_of(all);
        double waited = 0, known = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            add(operations[std::string(name_of(all[i].operation))], all[i], parts[i], peaks, weight);
            add(layers[log.owners()[all[i].owner]], all[i], parts[i], peaks, weight);
            profile.parts[static_cast<std::size_t>(parts[i])] += weight * seconds_of(all[i]);
            known += seconds_of(all[i]);
            if (parts[i] == Part::communication) waited += seconds_of(all[i]);
        }
        const double seconds = 1e-9 * static_cast<double>(step.end - step.begin);
        profile.seconds += weight * seconds;
        profile.other += weight * (seconds - known);
        if (step.background)
            profile.hidden = profile.hidden.value_or(0) +
                             weight * std::max(1e-9 * static_cast<double>(*step.background) - waited, 0.0);
    }
    profile.median = recorder.seconds();
    profile.operations = sorted(operations);
    profile.layers = sorted(layers);
    if (!recorder.steps().empty()) {
        const RecordedStep& last = recorder.steps().back();
        profile.memory = memory_of(log, std::span(log.operations()).subspan(last.first, last.operations));
    }
    profile.memory.held = recorder.held();
    return profile;
}

}  // namespace dp::trainer
