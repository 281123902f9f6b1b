// SPDX-License-Identifier: Apache-2.0
//
// SGD with momentum, and Adam: see optimizer.hpp.
#include "trainer/optimizer.hpp"

#include <cmath>

namespace dp::trainer {
namespace {

class Sgd final : public Optimizer {
 public:
    Sgd(double rate, Device& device, const ParameterSet& parameters)
        : device_(device), rate_(rate), velocity_(device.make(Type::f32, parameters.values().shape())) {}

    void step(const ParameterSet& parameters) override {
        device_.sgd(parameters.values(), parameters.gradients(), velocity_,
                    {static_cast<float>(rate_), kMomentum});
    }

 private:
    Device& device_;
    double rate_;
    Tensor velocity_;
};

class Adam final : public Optimizer {
 public:
    Adam(double rate, Device& device, const ParameterSet& parameters)
        : device_(device),
          rate_(rate),
          m_(device.make(Type::f32, parameters.values().shape())),
          v_(device.make(Type::f32, parameters.values().shape())) {}

    void step(const ParameterSet& parameters) override {
        device_.adam(parameters.values(), parameters.gradients(), m_, v_, adam_step(++steps_, rate_));
    }

 private:
    Device& device_;
    double rate_;
    std::int64_t steps_ = 0;
    Tensor m_;
    Tensor v_;
};

}  // namespace

AdamStep adam_step(std::int64_t step, double rate) {
    const auto t = static_cast<double>(step);
    return {static_cast<float>(rate / (1 - std::pow(kBeta1, t))),
            static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, t))), static_cast<float>(kBeta1),
            static_cast<float>(kBeta2), static_cast<float>(kEpsilon)};
}

int state_per_parameter(Optimization kind) {
    return kind == Optimization::adam ? 2 : 1;
}

std::unique_ptr<Optimizer> make_optimizer(Optimization kind, double rate, Device& device,
                                          const ParameterSet& parameters) {
    if (kind == Optimization::sgd) return std::make_unique<Sgd>(rate, device, parameters);
    return std::make_unique<Adam>(rate, device, parameters);
}

}  // namespace dp::trainer
