// SPDX-License-Identifier: Apache-2.0
//
// Optimizers: which numbers go into a step (pure functions), and who holds the state between steps. The
// arithmetic on the parameters is the device's. All ranks run the same step on the same gradients, so they
// stay bit-equal.
//
// Where the ranks of a node share memory they hold one state together, and each updates its part of the
// values that they have once. Sharded (--shard-optimizer; ZeRO's first stage, Rajbhandari et al. 2020) each
// rank holds the state of its part of the parameters only and updates that; stepper.cpp then lets all ranks
// gather the values. A step is elementwise, so what comes out is the same to the bit. The gradients are still
// summed whole, in buckets behind the backward pass (parallel/gradient_reducer.hpp): to sum only each rank's
// part of them would send a third less, but clipping by norm would then need another sum over the ranks,
// whose rounding is another.
#ifndef TRAINER_TRAINING_OPTIMIZER_HPP
#define TRAINER_TRAINING_OPTIMIZER_HPP

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/partition.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/parameters.hpp"

namespace dp::trainer {

// What the rules of the optimizers leave open; the defaults are their papers'.
struct OptimizerConstants {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // of adam
    double momentum = 0.9;                              // of sgd
};

struct OptimizerPlan {
    Optimization kind = Optimization::adam;
    // Weight decay, of all parameters but those of one dimension (biases): decoupled for Adam (AdamW), a part
    // of the gradient for SGD, as in PyTorch.
    double decay = 0;
    OptimizerConstants constants = {};
};

// The factors of Adam's step number `step` (the first is 1); `decay`: weight decay.
AdamStep adam_step(const OptimizerConstants& constants, std::int64_t step, double rate, double decay = 0);

class Optimizer {
 public:
    virtual ~Optimizer() = default;
    // The part of the values that it updates.
    virtual const Shard& part() const = 0;
    // Updates them from gradients as large as all values together, at this learning rate.
    virtual void step(const ParameterSet& parameters, const Tensor& gradients, double rate) = 0;

    // What it carries from step to step, for checkpoints: tensors laid out as the values are, by name, and
    // the number of steps, with which resume() goes on.
    struct State {
        std::string name;
        Tensor numbers;
        std::int64_t first;  // of the values, that they begin with
    };
    virtual std::vector<State> state() const = 0;
    virtual void resume(std::int64_t steps) = 0;
};

// f32 numbers of state that the optimizer holds for each parameter.
int state_per_parameter(Optimization kind);

// Of a part of all values. With `all`, so many, its state is that of all of them, which the ranks of a node
// hold together (Device::make_of_node); else it is that of its part.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerPlan& plan, Device& device, const Shard& part,
                                          std::optional<std::int64_t> all = {});

}  // namespace dp::trainer

#endif
