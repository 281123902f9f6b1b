// SPDX-License-Identifier: Apache-2.0
//
// SGD with momentum, and Adam: see optimizer.hpp.
#include "trainer/optimizer.hpp"

#include <cmath>
#include <vector>

namespace dp::trainer {
namespace {

// Of the parameters with and of those without weight decay; all at once where there is none.
struct Part {
    std::int64_t first, count;
    double decay;
};
std::vector<Part> parts_of(const ParameterSet& parameters, double decay) {
    const std::int64_t all = parameters.values().elements(), decayed = parameters.decayed();
    if (decay == 0 || decayed == all) return {{0, all, decay}};
    if (decayed == 0) return {{0, all, 0}};
    return {{0, decayed, decay}, {decayed, all - decayed, 0}};
}

class Sgd final : public Optimizer {
 public:
    Sgd(double decay, Device& device, const ParameterSet& parameters)
        : device_(device), decay_(decay), velocity_(device.make(Type::f32, parameters.values().shape())) {}

    void step(const ParameterSet& parameters, const Tensor& gradients, double rate) override {
        for (const Part& part : parts_of(parameters, decay_)) {
            const auto view = [&](const Tensor& whole) { return whole.view(part.first, {part.count}); };
            device_.sgd(view(parameters.values()), view(gradients), view(velocity_),
                        {static_cast<float>(rate), kMomentum, static_cast<float>(part.decay)});
        }
    }

    std::vector<State> state() const override { return {{"velocity", velocity_}}; }
    void resume(std::int64_t) override {}

 private:
    Device& device_;
    double decay_;
    Tensor velocity_;
};

class Adam final : public Optimizer {
 public:
    Adam(double decay, Device& device, const ParameterSet& parameters)
        : device_(device),
          decay_(decay),
          m_(device.make(Type::f32, parameters.values().shape())),
          v_(device.make(Type::f32, parameters.values().shape())) {}

    void step(const ParameterSet& parameters, const Tensor& gradients, double rate) override {
        ++steps_;
        for (const Part& part : parts_of(parameters, decay_)) {
            const auto view = [&](const Tensor& whole) { return whole.view(part.first, {part.count}); };
            device_.adam(view(parameters.values()), view(gradients), view(m_), view(v_),
                         adam_step(steps_, rate, part.decay));
        }
    }

    std::vector<State> state() const override { return {{"m", m_}, {"v", v_}}; }
    void resume(std::int64_t steps) override { steps_ = steps; }

 private:
    Device& device_;
    double decay_;
    std::int64_t steps_ = 0;
    Tensor m_;
    Tensor v_;
};

}  // namespace

AdamStep adam_step(std::int64_t step, double rate, double decay) {
    const auto t = static_cast<double>(step);
    return {static_cast<float>(rate / (1 - std::pow(kBeta1, t))),
            static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, t))),
            static_cast<float>(kBeta1),
            static_cast<float>(kBeta2),
            static_cast<float>(kEpsilon),
            static_cast<float>(1 - rate * decay)};
}

int state_per_parameter(Optimization kind) {
    return kind == Optimization::adam ? 2 : 1;
}

std::unique_ptr<Optimizer> make_optimizer(Optimization kind, double decay, Device& device,
                                          const ParameterSet& parameters) {
    if (kind == Optimization::sgd) return std::make_unique<Sgd>(decay, device, parameters);
    return std::make_unique<Adam>(decay, device, parameters);
}

}  // namespace dp::trainer
