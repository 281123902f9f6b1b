// SPDX-License-Identifier: Apache-2.0
//
// For a device that works behind the calls of its operations: what it did in each of them, as its maker's profiler tells afterwards.
// Nobody waits for a single operation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/result.hpp"

namespace dp::trainer {

struct LoggedOperation;

// A kernel, or a copy.
struct DeviceWork {
    std::uint32_t operation;  // that queued it
    std::int64_t begin, end;  // in nanoseconds of the steady clock
    std::uint64_t stream;     // those of one stream follow each other
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
    // What is queued until end() belongs to this operation. `layer` may be empty.
    virtual void begin(std::uint32_t number, std::string_view name, const std::string& layer) = 0;
    virtual void end() = 0;
    // Waits for the device, and notes no more. All that it did, in any order.
    virtual Result<std::vector<DeviceWork>> works() = 0;
};

// Pure. Each operation gets the time that it took on the stream of those before it: from its first work to the end of its last; where it
// queued nothing, none. A wait for other streams' works gets the time until their end in which its own stream did nothing. Returns
// what other streams did, in the order of their beginnings. `operations` are in the order of their calls.
std::vector<DeviceWork> give_device_times(std::vector<LoggedOperation>& operations,
                                          std::vector<DeviceWork> works);

}  // namespace dp::trainer
