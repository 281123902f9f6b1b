// SPDX-License-Identifier: Apache-2.0
//
// The optimizers over several steps against the textbook formulas in float64, on every device.
#include "trainer/training/optimizer.hpp"

#include <cmath>

#include "devices.hpp"

namespace dp::trainer {
namespace {

constexpr int kSteps = 25;
constexpr std::int64_t kCount = 777;
constexpr double kRate = 0.01;

Shard whole(const ParameterSet& parameters) {
    return {0, parameters.values().elements()};
}

class OptimizerTest : public OnEachDevice {
 protected:
    // Runs kSteps with gradients that change, once on the device and once through `reference`.
    template <typename Step>
    void check(const OptimizerOptions& plan, Step reference, const Shape& shape = {kCount}) {
        ParameterSet parameters;
        parameters.add("first", shape, Initial::uniform(1));
        parameters.place(device(), 3);
        const auto initial = device().values_of<float>(parameters.all()[0].value);
        Optimizer optimizer(plan, device(), whole(parameters));
        std::vector<double> value(initial.begin(), initial.end()), one(kCount), two(kCount);
        for (std::uint64_t step = 1; step <= kSteps; ++step) {
            auto gradient = random_values(kCount, 100 + step);
            gradient[0] = 0;       // never moves
            gradient[1] = 1e-12f;  // below epsilon
            device().upload(gradient.data(), parameters.all()[0].gradient);
            optimizer.step(parameters, parameters.gradients(), kRate);
            for (std::size_t i = 0; i < value.size(); ++i)
                reference(value[i], one[i], two[i], gradient[i], static_cast<int>(step));
        }
        const auto result = device().values_of<float>(parameters.all()[0].value);
        expect_close(result, value, 3e-6, "parameters");
        if (plan.decay == 0) {
            EXPECT_EQ(result[0], initial[0]);
        }
        EXPECT_GT(std::abs(result[2] - initial[2]), 1e-3) << "nothing moved";
    }
};

TEST_P(OptimizerTest, SgdWithMomentum) {
    check({Optimization::sgd}, [](double& value, double& velocity, double&, double gradient, int) {
        velocity = 0.9 * velocity + gradient;
        value -= kRate * velocity;
    });
}

TEST_P(OptimizerTest, Adam) {
    check({Optimization::adam}, [](double& value, double& m, double& v, double gradient, int step) {
        m = 0.9 * m + 0.1 * gradient;
        v = 0.999 * v + 0.001 * gradient * gradient;
        value -=
            kRate * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
    });
}

constexpr double kDecay = 0.1;

void adam_w(double& value, double& m, double& v, double gradient, int step) {
    m = 0.9 * m + 0.1 * gradient;
    v = 0.999 * v + 0.001 * gradient * gradient;
    value -= kRate * kDecay * value;
    value -= kRate * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
}

TEST_P(OptimizerTest, AdamWithDecoupledWeightDecay) {
    check({Optimization::adam, kDecay}, adam_w, {kCount / 7, 7});
}

TEST_P(OptimizerTest, SgdWithWeightDecay) {
    check({Optimization::sgd, kDecay},
          [](double& value, double& velocity, double&, double gradient, int) {
              velocity = 0.9 * velocity + gradient + kDecay * value;
              value -= kRate * velocity;
          },
          {kCount / 7, 7});
}

TEST_P(OptimizerTest, BiasesDoNotDecay) {
    for (Optimization kind : {Optimization::adam, Optimization::sgd}) {
        ParameterSet parameters;
        // Declared first, and yet behind the matrix.
        const Parameter& bias = parameters.add("bias", {5}, Initial::uniform(1));
        const Parameter& weight = parameters.add("weight", {5, 3}, Initial::uniform(1));
        parameters.place(device(), 3);
        const auto bias_before = device().values_of<float>(bias.value);
        const auto weight_before = device().values_of<float>(weight.value);
        device().zero(parameters.gradients());
        Optimizer({kind, kDecay}, device(), whole(parameters))
            .step(parameters, parameters.gradients(), kRate);
        EXPECT_EQ(device().values_of<float>(bias.value), bias_before);
        const auto weight_after = device().values_of<float>(weight.value);
        for (std::size_t i = 0; i < weight_before.size(); ++i)
            EXPECT_NEAR(weight_after[i], weight_before[i] * (1 - kRate * kDecay), 1e-7);
    }
}

TEST_P(OptimizerTest, TheConstantsAreThoseOfThePlan) {
    OptimizerOptions plan{Optimization::adam};
    plan.constants = {0.8, 0.95, 1e-3, 0.5};
    check(plan, [](double& value, double& m, double& v, double gradient, int step) {
        m = 0.8 * m + 0.2 * gradient;
        v = 0.95 * v + 0.05 * gradient * gradient;
        value -= kRate * (m / (1 - std::pow(0.8, step))) / (std::sqrt(v / (1 - std::pow(0.95, step))) + 1e-3);
    });
    plan.kind = Optimization::sgd;
    check(plan, [](double& value, double& velocity, double&, double gradient, int) {
        velocity = 0.5 * velocity + gradient;
        value -= kRate * velocity;
    });
    plan.constants.momentum = 0;
    check(plan, [](double& value, double&, double&, double gradient, int) { value -= kRate * gradient; });
}

// What has weight decay and what has none lie one behind the other, and the parts end anywhere.
TEST_P(OptimizerTest, PartsAreUpdatedAsTheWholeIsToTheBit) {
    for (const Optimization kind : {Optimization::adam, Optimization::sgd}) {
        for (const std::int64_t world : {1, 2, 3, 5}) {
            ParameterSet all, parts;
            for (ParameterSet* parameters : {&all, &parts}) {
                parameters->add("weight", {77, 7}, Initial::uniform(1));
                parameters->add("bias", {700}, Initial::uniform(1));
                parameters->place(device(), 3);
            }
            const OptimizerOptions plan{kind, kDecay};
            Optimizer optimizer(plan, device(), whole(all));
            std::vector<Optimizer> optimizers;
            std::int64_t held = 0;
            for (std::int64_t rank = 0; rank < world; ++rank) {
                const Shard part = shard_of(parts.values().elements(), rank, world);
                optimizers.emplace_back(plan, device(), part);
                for (const auto& state : optimizers.back().state()) {
                    EXPECT_EQ(state.first, part.first);
                    EXPECT_EQ(state.numbers.elements(), part.count);
                    held += state.numbers.elements();
                }
            }
            EXPECT_EQ(held, state_per_parameter(kind) * all.values().elements());
            for (std::uint64_t step = 1; step <= 3; ++step) {
                const auto gradients = random_values(all.values().elements(), 100 + step);
                device().upload(gradients.data(), all.gradients());
                optimizer.step(all, all.gradients(), kRate);
                for (auto& one : optimizers) one.step(parts, all.gradients(), kRate);
            }
            EXPECT_EQ(device().values_of<float>(parts.values()), device().values_of<float>(all.values()))
                << name_of(kind) << ", " << world << " parts";
        }
    }
}

// What operations take of parameters in bf16, wherever parts begin.
TEST_P(OptimizerTest, TheCopyIsThatOfTheNewValues) {
    for (const Optimization kind : {Optimization::adam, Optimization::sgd}) {
        for (const std::int64_t world : {1, 3}) {
            ParameterSet parameters;
            const Parameter& weight = parameters.add("weight", {77, 7}, Initial::uniform(1));
            parameters.add("bias", {700}, Initial::uniform(1));
            parameters.place(device(), 3, Type::bf16);
            const std::int64_t count = parameters.values().elements();
            const auto gradients = random_values(count, 101),
                       before = floats_of(device(), weight.compute_copy);
            device().upload(gradients.data(), parameters.gradients());
            for (std::int64_t rank = 0; rank < world; ++rank)
                Optimizer({kind, kDecay}, device(), shard_of(count, rank, world))
                    .step(parameters, parameters.gradients(), kRate);
            const Tensor expected = device().make(Type::bf16, {count});
            device().convert(parameters.values(), expected);
            EXPECT_EQ(floats_of(device(), parameters.narrow_copy()), floats_of(device(), expected))
                << name_of(kind) << ", " << world << " parts";
            EXPECT_NE(floats_of(device(), weight.compute_copy), before);
        }
    }
}

// Each of the tensors alone one number further on; as many numbers as a pack of 16 bytes has and others, and more than one each for
// the threads of an emulated GPU.
TEST_P(OptimizerTest, AdamsTensorsMayBeginAnywhereToTheBit) {
    for (const std::int64_t count : {1, 7, 8, 13, 5003}) {
        const auto results = [&](int which, bool copies) {
            int number = 0;
            const auto place = [&](std::uint64_t seed, Type type) {
                const std::int64_t skip = ++number == which ? 1 : 0;
                const Tensor tensor = device().make(type, {skip + count}).view(skip, {count});
                auto values = random_values(count, seed);
                for (float& value : values) value = seed == 4 ? value * value : value;
                device().convert(device().copy_of<float>(Type::f32, {count}, values), tensor);
                return tensor;
            };
            const Tensor parameters = place(1, Type::f32), gradients = place(2, Type::f32),
                         m = place(3, Type::f32), v = place(4, Type::f32), copy = place(5, Type::bf16);
            device().adam(parameters, gradients, m, v, {0.01f, 1.5f, 0.9f, 0.99f, 1e-8f, 0.999f},
                          copies ? copy : Tensor());
            std::vector<float> all;
            for (const Tensor& one : {parameters, m, v, copy}) {
                const auto found = floats_of(device(), one);
                all.insert(all.end(), found.begin(), found.end());
            }
            return all;
        };
        const auto expected = results(0, true);
        for (int which = 1; which <= 5; ++which) EXPECT_EQ(results(which, true), expected) << which;
        const auto without = results(0, false);
        const auto last = static_cast<std::ptrdiff_t>(3 * count);
        EXPECT_TRUE(std::equal(without.begin(), without.begin() + last, expected.begin()));
        // Nobody writes a copy that is not wanted.
        EXPECT_FALSE(std::equal(without.begin() + last, without.end(), expected.begin() + last));
    }
}

INSTANTIATE_ON_EACH_DEVICE(OptimizerTest);

// Ranks on different CPUs must not drift apart: wider vectors, where a CPU has them, round as these loops do, which are compiled
// for every CPU, and without fused products and sums.
TEST(CpuOptimizers, HaveTheSameBitsWhateverTheCpu) {
    constexpr std::int64_t kMany = 5003;
    const auto device = open_cpu(1);
    const auto numbers = [](std::uint64_t seed) { return random_values(kMany, seed); };
    auto p = numbers(1), g = numbers(2), m = numbers(3), v = numbers(4);
    for (float& one : v) one *= one;
    const auto on_device = [&](const std::vector<float>& values) {
        return device->copy_of<float>(Type::f32, {kMany}, values);
    };
    const Tensor first = on_device(p), gradients = on_device(g), first_m = on_device(m),
                 first_v = on_device(v);
    device->adam(first, gradients, first_m, first_v, {0.01f, 1.5f, 0.9f, 0.99f, 1e-8f, 0.999f}, Tensor());
    const Tensor second = on_device(p), velocity = on_device(m);
    device->sgd(second, gradients, velocity, {0.01f, 0.9f, 0.1f});
    auto q = p, u = m;
    for (std::size_t i = 0; i < p.size(); ++i) {
        m[i] = 0.9f * m[i] + (1 - 0.9f) * g[i];
        v[i] = 0.99f * v[i] + (1 - 0.99f) * g[i] * g[i];
        p[i] = 0.999f * p[i] - 0.01f * m[i] / (std::sqrt(v[i]) * 1.5f + 1e-8f);
        u[i] = 0.9f * u[i] + g[i] + 0.1f * q[i];
        q[i] -= 0.01f * u[i];
    }
    EXPECT_EQ(device->values_of<float>(first), p);
    EXPECT_EQ(device->values_of<float>(first_m), m);
    EXPECT_EQ(device->values_of<float>(first_v), v);
    EXPECT_EQ(device->values_of<float>(second), q);
    EXPECT_EQ(device->values_of<float>(velocity), u);
}

}  // namespace
}  // namespace dp::trainer
