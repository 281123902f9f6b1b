// SPDX-License-Identifier: Apache-2.0
//
// What a sample says of one task.
#pragma once

#include <algorithm>
#include <cstddef>

#include "record.pb.h"
#include "record/spent.hpp"

namespace dp {

// Of a list by task; zero where it ends early.
template <typename List>
auto of_task(const List& list, size_t local) -> typename List::value_type {
    return local < static_cast<size_t>(list.size()) ? list.Get(static_cast<int>(local))
                                                    : typename List::value_type(0);
}

// Of how many tasks it says anything.
inline size_t tasks_in(const record::Sample& sample) {
    return static_cast<size_t>(
        std::max({sample.idle_ms_size(), sample.compute_ms_size(), sample.load_ms_size(),
                  sample.communication_ms_size(), sample.checkpoint_ms_size(), sample.steps_size(),
                  sample.step_count_size(), sample.cpu_ms_size(), sample.memory_mib_size()}));
}

// What its program says that it did.
inline SpentTimes labelled_times(const record::Sample& sample, size_t local) {
    SpentTimes times{};
    of(times, Spent::idle) = of_task(sample.idle_ms(), local) / 1000.0;
    of(times, Spent::compute) = of_task(sample.compute_ms(), local) / 1000.0;
    of(times, Spent::load) = of_task(sample.load_ms(), local) / 1000.0;
    of(times, Spent::communication) = of_task(sample.communication_ms(), local) / 1000.0;
    of(times, Spent::checkpoint) = of_task(sample.checkpoint_ms(), local) / 1000.0;
    return times;
}

}  // namespace dp
