// SPDX-License-Identifier: Apache-2.0
//
// Notes when a device has finished what was queued so far, without waiting for it. Device::make_timestamps() makes one: to measure
// steps (commands/measure.cpp) as they run, and not with a device that is idle between them.
#pragma once

#include <vector>

namespace dp::trainer {

class Timestamps {
 public:
    virtual ~Timestamps() = default;
    // Takes one, of when all that is queued so far will be done.
    virtual void take() = 0;
    // Waits for them. Seconds from each to the next one; Device::status() says whether they are right.
    virtual std::vector<double> between() = 0;
};

}  // namespace dp::trainer
