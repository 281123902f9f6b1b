// SPDX-License-Identifier: Apache-2.0
//
// Who wants to hear of deaths, and what there was to hear. Thread-safe.
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

    // Tells it what has happened so far.
    uint64_t add(Callback callback);
    // When this returns the call-back is not running, unless this is called from inside of it.
    void forget(uint64_t watch);
    // Tells all. Nothing that happens after the end is news.
    void happen(const StepEvent& event);

 private:
    std::recursive_mutex mutex_;  // held while call-backs run; they may add and forget
    std::map<uint64_t, Callback> callbacks_;
    std::vector<StepEvent> history_;
    uint64_t next_ = 1;
};

}  // namespace dp
