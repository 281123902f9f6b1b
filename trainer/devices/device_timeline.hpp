// SPDX-License-Identifier: Apache-2.0
//
// For a device that works behind the calls of its operations: what it did in each of them, as its maker's profiler tells afterwards.
// Nobody waits for a single operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct LoggedOperation;

// A kernel, or a copy. In nanoseconds of the steady clock.
struct DeviceWork {
    std::int64_t queued;  // in a call of the host
    std::int64_t begin, end;
    std::size_t operation = 0;  // in whose call; give_device_times() knows it
};

// The thread of the log uses it.
class DeviceTimeline {
 public:
    DeviceTimeline() = default;
    DeviceTimeline(const DeviceTimeline&) = delete;
    DeviceTimeline& operator=(const DeviceTimeline&) = delete;
    virtual ~DeviceTimeline() = default;
    // Notes what is queued from now on. More than once does nothing.
    virtual void start() = 0;
    // Notes no more, and forgets what it has.
    virtual void stop() = 0;
    // For the device.
    virtual void wait() = 0;
    // What is queued until end() belongs to this operation, for people. `layer` may be empty.
    virtual void begin(std::string_view name, const std::string& layer) = 0;
    virtual void end() = 0;
    // Waits for the device. All that it did, in any order; then as stop().
    virtual Result<std::vector<DeviceWork>> works() = 0;
};

// Pure. Each operation, which has its time on the host, gets that of what it queued, from the first work to the end of the last; where it
// queued nothing, none. Sums that are started (start_all_reduces) go on beside: the wait for them (wait_all_reduces) gets the time until
// their end in which nothing else was done. Returns these works, in the order of their beginnings. `operations` are in the order of
// their calls; works that none of them queued are left out, and if these are all, it returns nothing and changes nothing.
std::optional<std::vector<DeviceWork>> give_device_times(std::vector<LoggedOperation>& operations,
                                                         std::vector<DeviceWork> works);

}  // namespace dp::trainer
