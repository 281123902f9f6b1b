// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/optimizer.hpp"

#include <algorithm>
#include <cmath>

namespace dp::trainer {
namespace {

std::vector<std::string> state_of(Optimization kind) {
    return kind == Optimization::adam ? std::vector<std::string>{"m", "v"}
                                      : std::vector<std::string>{"velocity"};
}

std::vector<std::string> state_of(const OptimizerOptions& options) {
    auto names = state_of(options.kind);
    if (options.ema_decay) names.emplace_back("ema");
    return names;
}

// A range of values that are updated alike: with weight decay, or without.
struct Stretch {
    std::int64_t first, count;
    double decay;
};

// The ranges of a part, which the border between the two may cross; a single one without weight decay.
std::vector<Stretch> stretches_of(const Shard& part, std::int64_t decayed, double decay) {
    if (decay == 0) return {{part.first, part.count, 0}};
    const std::int64_t end = part.first + part.count, border = std::clamp(decayed, part.first, end);
    return {{part.first, border - part.first, decay}, {border, end - border, 0}};
}

// The factors of Adam's step `step` (the first is 1).
AdamStep adam_step(const OptimizerConstants& constants, std::int64_t step, double rate, double decay,
                   const Clipping* clipping) {
    const auto t = static_cast<double>(step);
    return {static_cast<float>(rate / (1 - std::pow(constants.beta1, t))),
            static_cast<float>(1 / std::sqrt(1 - std::pow(constants.beta2, t))),
            static_cast<float>(constants.beta1),
            static_cast<float>(constants.beta2),
            static_cast<float>(constants.epsilon),
            static_cast<float>(1 - rate * decay),
            clipping};
}

}  // namespace

int state_per_parameter(Optimization kind) {
    return static_cast<int>(state_of(kind).size());
}

Optimizer::Optimizer(const OptimizerOptions& options, Device& device, const Shard& part,
                     std::optional<std::int64_t> all)
    : options_(options), device_(device), part_(part) {
    if (options.ema_decay) scratch_ = device.make(Type::f32, {kAverageScratch});
    for (const auto& name : state_of(options)) {
        Tensor numbers = all ? device.make_of_node(Type::f32, {*all}) : device.make(Type::f32, {part.count});
        state_.push_back({name, std::move(numbers), all ? 0 : part.first});
    }
}

void Optimizer::begin_average(const Slice& values) {
    if (!options_.ema_decay) return;
    const Slice ema{state_.back().numbers, state_.back().first};
    device_.convert(values.of(part_), ema.of(part_));
}

// In 32 bits the sum of decay and 1 - decay must be 1, or the average would drift.
void Optimizer::average(const Tensor& values, const Tensor& ema) {
    const float moves = 1 - static_cast<float>(*options_.ema_decay);
    for (std::int64_t done = 0; done < values.elements(); done += kAverageScratch) {
        const Shape some{std::min(kAverageScratch, values.elements() - done)};
        const Tensor by = scratch_.view(0, some), to = ema.view(done, some);
        device_.convert(to, by);
        device_.scale(by, -1);
        device_.add(values.view(done, some), by);
        device_.scale(by, moves);
        device_.add(by, to);
    }
}

void Optimizer::step(const Slice& values, std::int64_t decayed, const Slice& gradients, double rate,
                     const Tensor& clipping) {
    ++steps_;
    update(part_, values, decayed, gradients, rate, clipping);
}

void Optimizer::update(const Shard& part, const Slice& values, std::int64_t decayed, const Slice& gradients,
                       double rate, const Tensor& clipping) {
    const auto* clipped = clipping ? clipping.data<Clipping>() : nullptr;
    for (const auto& [first, count, decay] : stretches_of(part, decayed, options_.decay)) {
        if (count == 0) continue;
        const Shard stretch{first, count};
        const auto state = [&](std::size_t i) {
            return Slice{state_[i].numbers, state_[i].first}.of(stretch);
        };
        if (options_.kind == Optimization::sgd)
            device_.sgd(values.of(stretch), gradients.of(stretch), state(0),
                        {static_cast<float>(rate), static_cast<float>(options_.constants.momentum),
                         static_cast<float>(decay), clipped});
        else
            device_.adam(values.of(stretch), gradients.of(stretch), state(0), state(1),
                         adam_step(options_.constants, steps_, rate, decay, clipped));
        if (options_.ema_decay) average(values.of(stretch), state(state_.size() - 1));
    }
}

}  // namespace dp::trainer
