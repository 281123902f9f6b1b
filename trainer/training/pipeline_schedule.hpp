// SPDX-License-Identifier: Apache-2.0
//
// In which order a stage of a pipeline takes its micro-batches. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace dp::trainer {

enum class PipelineSchedule {
    // First as many forward passes as it takes until the last stage gives something back, then one forward and one backward pass in
    // turn (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters"; PipeDream-Flush there).
    one_forward_one_backward,
    gpipe,  // first all forward passes, then all backward passes (Huang et al. 2019)
};

constexpr std::string_view name_of(PipelineSchedule schedule) {
    return schedule == PipelineSchedule::gpipe ? "gpipe" : "1f1b";
}

// One pass of a micro-batch, or both, one behind the other.
struct Turn {
    std::int64_t micro_batch;
    bool forward, backward;
    bool operator==(const Turn&) const = default;
};

// Micro-batches that this stage has between their passes, at most.
constexpr std::int64_t slots_of(PipelineSchedule schedule, std::int64_t stage, std::int64_t stages,
                                std::int64_t micro_batches) {
    return schedule == PipelineSchedule::gpipe ? micro_batches : std::min(micro_batches, stages - stage);
}

// All passes of a step, of `stage` of `stages`. The passes of each kind come in the order of the micro-batches.
inline std::vector<Turn> turns_of(PipelineSchedule schedule, std::int64_t stage, std::int64_t stages,
                                  std::int64_t micro_batches) {
    std::vector<Turn> turns;
    if (stages == 1) {
        for (std::int64_t one = 0; one < micro_batches; ++one) turns.push_back({one, true, true});
        return turns;
    }
    const std::int64_t ahead = slots_of(schedule, stage, stages, micro_batches);
    for (std::int64_t one = 0; one < micro_batches; ++one) {
        turns.push_back({one, true, false});
        if (one >= ahead - 1) turns.push_back({one - (ahead - 1), false, true});
    }
    for (std::int64_t one = micro_batches - (ahead - 1); one < micro_batches; ++one)
        turns.push_back({one, false, true});
    return turns;
}

// The part of a step's time in which a stage waits for others, where all passes of all stages take as long (Narayanan et al. 2021,
// section 2.2, of the whole time).
constexpr double bubble_of(std::int64_t stages, std::int64_t micro_batches) {
    return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace dp::trainer
