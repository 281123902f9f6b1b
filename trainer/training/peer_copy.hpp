// SPDX-License-Identifier: Apache-2.0
//
// Another rank's part of a sharded optimizer, with the values that it updates, kept so that the part outlives its rank
// (--peer-copy, survival.hpp). Nothing is sent for it: the gradients are all-reduced whole, so this rank can take the
// other one's steps with the same numbers, which gives the same bits.
#pragma once

#include "trainer/training/optimizer.hpp"

namespace dp::trainer {

class PeerCopy {
 public:
    // Holds nothing before begin().
    PeerCopy(const OptimizerOptions& options, Device& device, const Shard& part)
        : device_(device),
          optimizer_(options, device, part),
          values_{device.make(Type::f32, {part.count}), part.first} {}

    // From the parameters after `steps` steps; the state of optimizer() has been restored.
    void begin(const ParameterSet& parameters, std::int64_t steps) {
        device_.convert(Slice{parameters.values()}.of(part()), values_.numbers);
        optimizer_.resume(steps);
        if (steps == 0) optimizer_.begin_average(values_);
    }
    // Takes the step that the other rank takes.
    void step(const ParameterSet& parameters, const Tensor& gradients, double rate, const Tensor& clipping) {
        optimizer_.step(values_, parameters.decayed(), {gradients}, rate, clipping);
    }

    const Shard& part() const { return optimizer_.part(); }
    const Optimizer& optimizer() const { return optimizer_; }
    const Tensor& values() const { return values_.numbers; }

 private:
    Device& device_;
    Optimizer optimizer_;
    Slice values_;
};

}  // namespace dp::trainer
