// SPDX-License-Identifier: Apache-2.0
//
// Runs a test on every device: the CPU always, CUDA where there is a GPU, else the test is skipped and says
// why. Tests of what has two types (devices/device.hpp) run with f32 and with bf16 on each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/bfloat16.hpp"
#include "trainer/base/random.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/devices/open.hpp"

namespace dp::trainer {

class OnEachDevice : public ::testing::TestWithParam<std::string> {
 protected:
    void SetUp() override {
        if (GetParam().starts_with("cpu")) {
            device_ = open_cpu(1);
            return;
        }
        auto cuda = open_cuda({});
        // tests/gpu/run sets this once it has seen a GPU: from there on, not getting it is a failure.
        if (!cuda && std::getenv("DP_TESTS_REQUIRE_CUDA") != nullptr) FAIL() << cuda.error().message;
        if (!cuda) GTEST_SKIP() << "not run on CUDA: " << cuda.error().message;
        device_ = std::move(*cuda);
    }
    // A test that broke the device would prove nothing.
    void TearDown() override {
        if (!device_) return;
        auto sound = device_->status();
        EXPECT_TRUE(sound) << sound.error().message;
    }

    Device& device() { return *device_; }

 private:
    std::unique_ptr<Device> device_;
};

// What bf16 cuts off of a number, at most, as a part of it: it keeps 8 bits.
inline constexpr double kBfloat16Rounding = 0x1p-8;

// The numbers that a tensor of f32 or bf16 holds.
inline std::vector<float> floats_of(Device& device, const Tensor& tensor) {
    if (tensor.type() == Type::f32) return device.values_of<float>(tensor);
    std::vector<float> values;
    for (const Bfloat16 value : device.values_of<Bfloat16>(tensor)) values.push_back(to_float(value));
    return values;
}

// In each test file that has such tests.
#define INSTANTIATE_ON_EACH_DEVICE(suite)                                      \
    INSTANTIATE_TEST_SUITE_P(Devices, suite, ::testing::Values("cpu", "cuda"), \
                             [](const auto& parameter) { return parameter.param; })

#define INSTANTIATE_ON_EACH_DEVICE_IN_EACH_PRECISION(suite)                                             \
    INSTANTIATE_TEST_SUITE_P(Devices, suite, ::testing::Values("cpu", "cpu_bf16", "cuda", "cuda_bf16"), \
                             [](const auto& parameter) { return parameter.param; })

inline std::vector<float> random_values(std::int64_t count, std::uint64_t seed, float low = -1,
                                        float high = 1) {
    Random random(seed, 0);
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(random.uniform(low, high));
    return values;
}

inline Tensor upload(Device& device, Shape shape, const std::vector<float>& values) {
    return device.copy_of<float>(Type::f32, std::move(shape), values);
}

// Every element within `tolerance` of the reference, relative to the largest of them, and within `rounding`,
// relative to itself and to what was rounded before it became that (`rounded_before`, if anything was).
inline void expect_close(const std::vector<float>& values, const std::vector<double>& reference,
                         double tolerance, const std::string& what, double rounding = 0,
                         const std::vector<double>& rounded_before = {}) {
    ASSERT_EQ(values.size(), reference.size()) << what;
    double largest = 1e-30;
    for (double value : reference) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(
            static_cast<double>(values[i]), reference[i],
            tolerance * largest + rounding * (std::abs(reference[i]) +
                                              (rounded_before.empty() ? 0 : std::abs(rounded_before[i]))))
            << what << ", element " << i;
    }
}

// Tests whose fixture this is compute with tensors of type(), and check what is f32 in any precision as f32.
class OnEachDeviceInEachPrecision : public OnEachDevice {
 protected:
    Type type() const { return GetParam().ends_with("bf16") ? Type::bf16 : Type::f32; }

    // Those that the device will read, so that a reference begins with the same.
    std::vector<float> representable(std::vector<float> values) const {
        if (type() == Type::bf16)
            for (float& value : values) value = to_float(to_bfloat16(value));
        return values;
    }
    std::vector<float> numbers(std::int64_t count, std::uint64_t seed, float low = -1, float high = 1) const {
        return representable(random_values(count, seed, low, high));
    }

    // Of type().
    Tensor flowing(Shape shape) { return device().make(type(), std::move(shape)); }
    Tensor flowing(Shape shape, const std::vector<float>& values) {
        if (type() == Type::f32) return upload(device(), std::move(shape), values);
        std::vector<Bfloat16> narrow;
        for (const float value : values) narrow.push_back(to_bfloat16(value));
        return device().copy_of<Bfloat16>(Type::bf16, std::move(shape), narrow);
    }
    Tensor floats(Shape shape) { return device().make(Type::f32, std::move(shape)); }
    Tensor floats(Shape shape, const std::vector<float>& values) {
        return upload(device(), std::move(shape), values);
    }
    std::vector<float> values(const Tensor& tensor) { return floats_of(device(), tensor); }

    // `tolerance`: of the arithmetic, which is that of f32. A bf16 result is rounded once.
    void expect_tensor(const Tensor& tensor, const std::vector<double>& reference, double tolerance,
                       const std::string& what, const std::vector<double>& rounded_before = {}) {
        expect_close(values(tensor), reference, tolerance, what,
                     tensor.type() == Type::bf16 ? kBfloat16Rounding : 0, rounded_before);
    }
};

}  // namespace dp::trainer
