// SPDX-License-Identifier: Apache-2.0
//
// Optimizers: which numbers go into a step (pure functions), and who holds the state between steps. The
// arithmetic on the parameters is the device's. All ranks run the same step on the same gradients, so they
// stay bit-equal.
#ifndef TRAINER_OPTIMIZER_HPP
#define TRAINER_OPTIMIZER_HPP

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/devices/device.hpp"
#include "trainer/models/model.hpp"
#include "trainer/parameters.hpp"

namespace dp::trainer {

inline constexpr float kMomentum = 0.9f;                                // of sgd
inline constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;  // of adam, as in its paper

// The factors of Adam's step number `step` (the first is 1); `decay`: weight decay.
AdamStep adam_step(std::int64_t step, double rate, double decay = 0);

class Optimizer {
 public:
    virtual ~Optimizer() = default;
    // Updates the values from gradients as large as all values together, at this learning rate.
    virtual void step(const ParameterSet& parameters, const Tensor& gradients, double rate) = 0;

    // What it carries from step to step, for checkpoints: tensors laid out as the values are, by name, and
    // the number of steps, with which resume() goes on.
    struct State {
        std::string name;
        Tensor numbers;
    };
    virtual std::vector<State> state() const = 0;
    virtual void resume(std::int64_t steps) = 0;
};

// f32 numbers of state that the optimizer holds for each parameter.
int state_per_parameter(Optimization kind);

// `decay`: weight decay, of all parameters but those of one dimension (biases): decoupled for Adam (AdamW),
// a part of the gradient for SGD, as in PyTorch.
std::unique_ptr<Optimizer> make_optimizer(Optimization kind, double decay, Device& device,
                                          const ParameterSet& parameters);

}  // namespace dp::trainer

#endif
