// SPDX-License-Identifier: Apache-2.0
//
// Runs a test on every device: the CPU always, CUDA where there is a GPU, else the test is skipped and says
// why.
#ifndef TESTS_UNIT_TRAINER_DEVICES_HPP
#define TESTS_UNIT_TRAINER_DEVICES_HPP

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "trainer/devices/cpu.hpp"
#include "trainer/devices/open.hpp"
#include "trainer/random.hpp"

namespace dp::trainer {

class OnEachDevice : public ::testing::TestWithParam<std::string> {
 protected:
    void SetUp() override {
        if (GetParam() == "cpu") {
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

// In each test file that has such tests.
#define INSTANTIATE_ON_EACH_DEVICE(suite)                                      \
    INSTANTIATE_TEST_SUITE_P(Devices, suite, ::testing::Values("cpu", "cuda"), \
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

// Every element within `tolerance` of the reference, relative to the largest of them.
inline void expect_close(const std::vector<float>& values, const std::vector<double>& reference,
                         double tolerance, const std::string& what) {
    ASSERT_EQ(values.size(), reference.size()) << what;
    double largest = 1e-30;
    for (double value : reference) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(values[i]), reference[i], tolerance * largest)
            << what << ", element " << i;
    }
}

}  // namespace dp::trainer

#endif
