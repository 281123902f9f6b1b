// SPDX-License-Identifier: Apache-2.0
//
// Single phases in records that tests make up.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "recorded.hpp"

namespace dp {

inline constexpr unsigned kCompute = 1, kCommunication = 3;
using Phase = std::pair<unsigned, uint32_t>;  // its dp_phase_kind, and ms

// The first one began `before_ms` before the sample. Each compute phase but the first begins a step.
inline void add_detail(record::Sample& sample, uint32_t task, uint64_t before_ms, uint64_t step,
                       const std::vector<Phase>& phases) {
    auto& detail = *sample.add_details();
    detail.set_task(task);
    detail.set_before_us(static_cast<int64_t>(before_ms) * 1000);
    detail.set_step(step);
    bool is_first = true;
    for (const auto& [phase, ms] : phases) {
        const bool begins_step = phase == kCompute && !is_first;
        detail.mutable_step_and_phase()->push_back(static_cast<char>((begins_step ? 8u : 0u) | phase));
        detail.add_length_us(uint64_t{ms} * 1000);
        is_first = false;
    }
}

}  // namespace dp
