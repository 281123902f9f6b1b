// SPDX-License-Identifier: Apache-2.0
//
// SGD with momentum, and Adam: which numbers go into a step, and the state between steps. The device does the
// arithmetic. All ranks take the same step with the same gradients, so they stay bit-equal.
//
// If the ranks of a node share memory, they hold one state together, and each updates its part of the shared
// values. With --shard-optimizer (ZeRO's first stage, Rajbhandari et al. 2020) each rank holds and updates
// only its part; train_step.cpp then all-gathers the values. A step is elementwise, so the result is the same
// to the bit. Gradients are still all-reduced whole, in buckets during the backward pass: a reduce-scatter
// would send a third less, but clipping by norm would need another sum over the ranks, rounded otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/models/model.hpp"

namespace dp::trainer {

// The optimizers' hyper-parameters; the defaults are their papers'.
struct OptimizerConstants {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // of adam
    double momentum = 0.9;                              // of sgd
};

struct OptimizerOptions {
    Optimization kind = Optimization::adam;
    // Weight decay, of all parameters but those of one dimension (biases): decoupled for Adam (AdamW), a part
    // of the gradient for SGD, as in PyTorch.
    double decay = 0;
    OptimizerConstants constants = {};
    // Of a moving average of the values, w_ema += (1 - decay) (w - w_ema) after each step (Polyak and Juditsky 1992); nullopt: none.
    std::optional<double> ema_decay = {};
};

// f32 numbers that an average takes for itself, however many values there are.
inline constexpr std::int64_t kAverageScratch = std::int64_t{1} << 18;

// Numbers of a vector that is laid out like the values, from `first` on.
struct Slice {
    Tensor numbers;
    std::int64_t first = 0;

    Tensor of(const Shard& part) const { return numbers.view(part.first - first, {part.count}); }
};

// f32 numbers of state that the optimizer holds for each parameter, without the average.
int state_per_parameter(Optimization kind);

class Optimizer {
 public:
    // For a part of all values. With `all`, their total number, the ranks of a node hold the state of all
    // values together (Device::make_of_node); else it covers this part only.
    Optimizer(const OptimizerOptions& options, Device& device, const Shard& part,
              std::optional<std::int64_t> all = {});

    // The part of the values that this rank updates.
    const Shard& part() const { return part_; }
    // Updates them. `gradients` is as long as all values together.
    // `clipping`: of these gradients, f64 [kClipping] on the device; empty: they are taken as they are.
    void step(const ParameterSet& parameters, const Tensor& gradients, double rate,
              const Tensor& clipping = {}) {
        step({parameters.values()}, parameters.decayed(), {gradients}, rate, clipping);
    }
    // The same for values that may be those of its part alone. `decayed`: how many of all values, the first ones, have weight
    // decay.
    void step(const Slice& values, std::int64_t decayed, const Slice& gradients, double rate,
              const Tensor& clipping = {});
    // The last step was skipped on the device: the next one has its number.
    void count_as_skipped() { --steps_; }
    // Whether a step can be skipped on the device: an average takes several operations, which know nothing of it.
    bool skips_on_device() const { return !options_.ema_decay; }

    // Repeats the last step for the part of a rank of this node that died before it.
    void update(const Shard& part, const ParameterSet& parameters, const Tensor& gradients, double rate,
                const Tensor& clipping = {}) {
        update(part, {parameters.values()}, parameters.decayed(), {gradients}, rate, clipping);
    }

    // The average begins with these values, before the first step. No average: does nothing.
    void begin_average(const Slice& values);

    // The state for checkpoints: tensors laid out like the values, by name, and the number of steps, from
    // which resume() continues.
    struct State {
        std::string name;
        Tensor numbers;
        std::int64_t first;  // of the values, that they begin with
    };
    const std::vector<State>& state() const { return state_; }
    void resume(std::int64_t steps) { steps_ = steps; }

 private:
    OptimizerOptions options_;
    Device& device_;
    Shard part_;
    std::vector<State> state_;
    std::int64_t steps_ = 0;
    Tensor scratch_;  // of the average

    void average(const Tensor& values, const Tensor& ema);
    void update(const Shard& part, const Slice& values, std::int64_t decayed, const Slice& gradients,
                double rate, const Tensor& clipping);
};

}  // namespace dp::trainer
