// SPDX-License-Identifier: Apache-2.0
//
// What a device can be besides, for which queueing each operation of a step takes time (devices/cuda/captured_step.hpp): it is told
// where steps begin and end, and queues together what they have in common. It stays as if each operation were queued when called.
#pragma once

#include <string>

namespace dp::trainer {

class StepCapture {
 public:
    virtual ~StepCapture() = default;
    // Off at first.
    virtual void set_capture(bool on) = 0;
    virtual void begin_step() = 0;
    virtual void end_step() = 0;
    // Those to come are another training's: nothing is known of them, and nothing refused yet.
    virtual void forget_steps() = 0;
    // Why it queues each operation by itself although it is on; empty: it does not.
    virtual const std::string& refusal() const = 0;
};

// A step of such a device, while this lives; null: of another one.
class MarkedStep {
 public:
    explicit MarkedStep(StepCapture* device) : device_(device) {
        if (device_ != nullptr) device_->begin_step();
    }
    ~MarkedStep() {
        if (device_ != nullptr) device_->end_step();
    }
    MarkedStep(const MarkedStep&) = delete;
    MarkedStep& operator=(const MarkedStep&) = delete;

 private:
    StepCapture* device_;
};

}  // namespace dp::trainer
