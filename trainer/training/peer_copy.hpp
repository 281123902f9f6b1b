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
    // Holds nothing before begin(). `clips`: the other rank scales its gradients, so store() comes before that.
    PeerCopy(const OptimizerOptions& options, Device& device, const Shard& part, bool clips)
        : device_(device),
          optimizer_(options, device, part),
          values_{device.make(Type::f32, {part.count}), part.first},
          clipped_{clips ? device.make(Type::f32, {part.count}) : Tensor(), part.first} {}

    // From the parameters after `steps` steps; the state of optimizer() has been restored.
    void begin(const ParameterSet& parameters, std::int64_t steps) {
        device_.convert(Slice{parameters.values()}.of(part()), values_.numbers);
        optimizer_.resume(steps);
        if (steps == 0) optimizer_.begin_average(values_);
    }
    // Only with `clips`: the summed gradients of all values, before they are scaled; and then the scale.
    void store(const Tensor& gradients) { device_.convert(Slice{gradients}.of(part()), clipped_.numbers); }
    void scale(float factor) { device_.scale(clipped_.numbers, factor); }
    // Takes the step that the other rank takes.
    void step(const ParameterSet& parameters, const Tensor& gradients, double rate) {
        optimizer_.step(values_, parameters.decayed(), clipped_.numbers ? clipped_ : Slice{gradients}, rate);
    }

    const Shard& part() const { return optimizer_.part(); }
    const Optimizer& optimizer() const { return optimizer_; }
    const Tensor& values() const { return values_.numbers; }

 private:
    Device& device_;
    Optimizer optimizer_;
    Slice values_, clipped_;
};

}  // namespace dp::trainer
