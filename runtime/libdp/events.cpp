// SPDX-License-Identifier: Apache-2.0
#include "libdp/events.hpp"

#include <utility>

namespace dp {

uint64_t Events::add(Callback callback) {
    std::lock_guard guard(mutex_);
    const uint64_t watch = next_++;
    const Callback first = callback;  // it may forget itself
    callbacks_.emplace(watch, std::move(callback));
    const std::vector<StepEvent> before = history_;
    for (const StepEvent& event : before) first(event);
    return watch;
}

void Events::forget(uint64_t watch) {
    std::lock_guard guard(mutex_);
    callbacks_.erase(watch);
}

void Events::happen(const StepEvent& event) {
    std::lock_guard guard(mutex_);
    if (!history_.empty() && history_.back().kind != DP_EVENT_DEATHS) return;
    history_.push_back(event);
    std::vector<uint64_t> watches;
    for (const auto& [watch, callback] : callbacks_) watches.push_back(watch);
    for (uint64_t watch : watches) {
        auto found = callbacks_.find(watch);
        if (found == callbacks_.end()) continue;
        const Callback callback = found->second;
        callback(event);
    }
}

}  // namespace dp
