// SPDX-License-Identifier: Apache-2.0
//
// Subscriptions to events, and the events so far. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dp/dp.h"

namespace dp {

struct StepEvent {
    dp_event_kind kind;
    std::string reason;
    std::vector<uint32_t> ranks;
};

class Events {
 public:
    using Callback = std::function<void(const StepEvent&)>;

    // Delivers the events so far to it.
    uint64_t add(Callback callback) {
        const std::lock_guard guard(mutex_);
        const uint64_t watch = next_++;
        callbacks_.emplace(watch, callback);
        for (const StepEvent& event : std::vector(history_)) callback(event);
        return watch;
    }
    // Once this returns, the call-back is not running, unless this is called from inside it.
    void forget(uint64_t watch) {
        const std::lock_guard guard(mutex_);
        callbacks_.erase(watch);
    }
    // What happened in the last generation is over.
    void begin_anew() {
        const std::lock_guard guard(mutex_);
        std::erase_if(history_, [](const StepEvent& event) { return !is_the_end(event); });
    }
    // Delivers an event to all. Nothing is delivered after the end of the step.
    void happen(const StepEvent& event) {
        const std::lock_guard guard(mutex_);
        if (!history_.empty() && is_the_end(history_.back())) return;
        history_.push_back(event);
        // Copies: a call-back may forget itself and others.
        for (const auto& [watch, callback] : std::map(callbacks_))
            if (callbacks_.contains(watch)) callback(event);
    }

 private:
    static bool is_the_end(const StepEvent& event) {
        return event.kind == DP_EVENT_ENDING || event.kind == DP_EVENT_LOST;
    }

    std::recursive_mutex mutex_;  // held while call-backs run; they may add and forget
    std::map<uint64_t, Callback> callbacks_;
    std::vector<StepEvent> history_;
    uint64_t next_ = 1;
};

}  // namespace dp
