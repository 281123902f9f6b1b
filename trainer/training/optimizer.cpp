// SPDX-License-Identifier: Apache-2.0
//
// SGD with momentum, and Adam: see optimizer.hpp.
#include "trainer/training/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace dp::trainer {
namespace {

// A range of values that are updated alike: with weight decay, or without.
struct Stretch {
    std::int64_t first, count;
    double decay;
};

// The ranges of a part, which the border between the two may cross; a single one without weight decay.
std::vector<Stretch> stretches_of(const ParameterSet& parameters, const Shard& part, double decay) {
    if (decay == 0) return {{part.first, part.count, 0}};
    const std::int64_t end = part.first + part.count,
                       border = std::clamp(parameters.decayed(), part.first, end);
    return {{part.first, border - part.first, decay}, {border, end - border, 0}};
}

// Optimizer state, indexed by the values that it belongs to.
class StateOf {
 public:
    StateOf(Device& device, const Shard& part, std::optional<std::int64_t> all)
        : first_(all ? 0 : part.first),
          numbers_(all ? device.make_of_node(Type::f32, {*all}) : device.make(Type::f32, {part.count})) {}

    Tensor of(std::int64_t first, std::int64_t count) const { return numbers_.view(first - first_, {count}); }
    Optimizer::State named(std::string name) const { return {std::move(name), numbers_, first_}; }

 private:
    std::int64_t first_;
    Tensor numbers_;
};

class Sgd final : public Optimizer {
 public:
    Sgd(const OptimizerPlan& plan, Device& device, const Shard& part, std::optional<std::int64_t> all)
        : device_(device), plan_(plan), part_(part), velocity_(device, part, all) {}

    const Shard& part() const override { return part_; }
    void step(const ParameterSet& parameters, const Tensor& gradients, double rate) override {
        for (const auto& [first, count, decay] : stretches_of(parameters, part_, plan_.decay)) {
            if (count == 0) continue;
            device_.sgd(parameters.values().view(first, {count}), gradients.view(first, {count}),
                        velocity_.of(first, count),
                        {static_cast<float>(rate), static_cast<float>(plan_.constants.momentum),
                         static_cast<float>(decay)});
        }
    }

    std::vector<State> state() const override { return {velocity_.named("velocity")}; }
    void resume(std::int64_t) override {}

 private:
    Device& device_;
    OptimizerPlan plan_;
    Shard part_;
    StateOf velocity_;
};

class Adam final : public Optimizer {
 public:
    Adam(const OptimizerPlan& plan, Device& device, const Shard& part, std::optional<std::int64_t> all)
        : device_(device), plan_(plan), part_(part), m_(device, part, all), v_(device, part, all) {}

    const Shard& part() const override { return part_; }
    void step(const ParameterSet& parameters, const Tensor& gradients, double rate) override {
        ++steps_;
        for (const auto& [first, count, decay] : stretches_of(parameters, part_, plan_.decay)) {
            if (count == 0) continue;
            device_.adam(parameters.values().view(first, {count}), gradients.view(first, {count}),
                         m_.of(first, count), v_.of(first, count),
                         adam_step(plan_.constants, steps_, rate, decay));
        }
    }

    std::vector<State> state() const override { return {m_.named("m"), v_.named("v")}; }
    void resume(std::int64_t steps) override { steps_ = steps; }

 private:
    Device& device_;
    OptimizerPlan plan_;
    Shard part_;
    std::int64_t steps_ = 0;
    StateOf m_, v_;
};

}  // namespace

AdamStep adam_step(const OptimizerConstants& constants, std::int64_t step, double rate, double decay) {
    const auto t = static_cast<double>(step);
    return {static_cast<float>(rate / (1 - std::pow(constants.beta1, t))),
            static_cast<float>(1 / std::sqrt(1 - std::pow(constants.beta2, t))),
            static_cast<float>(constants.beta1),
            static_cast<float>(constants.beta2),
            static_cast<float>(constants.epsilon),
            static_cast<float>(1 - rate * decay)};
}

int state_per_parameter(Optimization kind) {
    return kind == Optimization::adam ? 2 : 1;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerPlan& plan, Device& device, const Shard& part,
                                          std::optional<std::int64_t> all) {
    if (plan.kind == Optimization::sgd) return std::make_unique<Sgd>(plan, device, part, all);
    return std::make_unique<Adam>(plan, device, part, all);
}

}  // namespace dp::trainer
