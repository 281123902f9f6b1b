// SPDX-License-Identifier: Apache-2.0
//
// In which order a stage of a pipeline takes its micro-batches. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace dp::trainer {

enum class PipelineSchedule {
    // First as many forward passes as it takes until the last stage gives something back, then one forward and one backward pass in
    // turn (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters"; PipeDream-Flush there).
    one_forward_one_backward,
    gpipe,  // first all forward passes, then all backward passes (Huang et al. 2019)
    // As 1f1b, where each stage has several chunks of layers: as many micro-batches as there are stages go through one chunk, then
    // through the next (section 2.2 there). Stages wait less, and send more.
    interleaved,
};

constexpr std::string_view name_of(PipelineSchedule schedule) {
    switch (schedule) {
        case PipelineSchedule::gpipe:
            return "gpipe";
        case PipelineSchedule::interleaved:
            return "interleaved";
        case PipelineSchedule::one_forward_one_backward:
            break;
    }
    return "1f1b";
}

// One pass of a micro-batch through a chunk of layers, or both passes, one behind the other. What it keeps from the forward to the
// backward pass is in a slot that no other has meanwhile.
struct Turn {
    std::int64_t micro_batch, chunk, slot;
    bool forward, backward;
    bool operator==(const Turn&) const = default;
};

// What a stage does in a step. `chunks` is 1 but where the schedule is interleaved; then the stages divide the micro-batches.
struct Passes {
    PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
    std::int64_t stage = 0, stages = 1, chunks = 1, micro_batches = 1;
};

// How many forward passes a stage begins before its first backward pass: those that are on their way at most.
constexpr std::int64_t slots_of(const Passes& of) {
    const std::int64_t all = of.micro_batches * of.chunks, behind = of.stages - 1 - of.stage;
    if (of.schedule == PipelineSchedule::gpipe) return all;
    if (of.schedule == PipelineSchedule::one_forward_one_backward) return std::min(all, behind + 1);
    return std::min(all, 2 * behind + (of.chunks - 1) * of.stages + 1);
}

// The micro-batch and the chunk of a stage's forward pass of that number; of its backward passes, if the chunks go the other way.
constexpr std::pair<std::int64_t, std::int64_t> pass_of(const Passes& of, std::int64_t number) {
    const std::int64_t group = of.stages * of.chunks;  // as many micro-batches as stages, through all chunks
    if (of.chunks == 1) return {number, 0};
    return {number / group * of.stages + number % of.stages, number % group / of.stages};
}

// All passes of a step. Those of each kind come in the same order on all stages.
inline std::vector<Turn> turns_of(const Passes& of) {
    std::vector<Turn> turns;
    if (of.stages == 1) {
        for (std::int64_t one = 0; one < of.micro_batches; ++one) turns.push_back({one, 0, 0, true, true});
        return turns;
    }
    const std::int64_t all = of.micro_batches * of.chunks, slots = slots_of(of);
    std::vector<std::int64_t> free_slots, slot_of(static_cast<std::size_t>(all));
    const auto place_of = [&](std::int64_t micro_batch, std::int64_t chunk) {
        return static_cast<std::size_t>(micro_batch * of.chunks + chunk);
    };
    for (std::int64_t slot = slots; slot-- > 0;) free_slots.push_back(slot);
    const auto forward = [&](std::int64_t number) {
        const auto [micro_batch, chunk] = pass_of(of, number);
        turns.push_back({micro_batch, chunk, free_slots.back(), true, false});
        slot_of[place_of(micro_batch, chunk)] = free_slots.back();
        free_slots.pop_back();
    };
    const auto backward = [&](std::int64_t number) {
        const auto [micro_batch, from_last] = pass_of(of, number);
        const std::int64_t chunk = of.chunks - 1 - from_last, slot = slot_of[place_of(micro_batch, chunk)];
        turns.push_back({micro_batch, chunk, slot, false, true});
        free_slots.push_back(slot);
    };
    for (std::int64_t number = 0; number < all; ++number) {
        forward(number);
        if (number >= slots - 1) backward(number - (slots - 1));
    }
    for (std::int64_t number = all - (slots - 1); number < all; ++number) backward(number);
    return turns;
}

// The part of a step's time in which a stage waits for others, where all passes of all stages take as long (Narayanan et al. 2021,
// section 2.2, of the whole time).
constexpr double bubble_of(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks = 1) {
    return static_cast<double>(stages - 1) / static_cast<double>(chunks * micro_batches + stages - 1);
}

}  // namespace dp::trainer
