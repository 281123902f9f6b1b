// SPDX-License-Identifier: Apache-2.0
//
// Captured steps (devices/step_capture.hpp): whatever a step calls, and wherever the host looks, the numbers are those of the calls.
#include "trainer/devices/step_capture.hpp"

#include "devices.hpp"

namespace dp::trainer {
namespace {

struct StepCaptureTest : OnEachDevice {};

// What the steps leave, and what the host saw within some of them.
std::vector<float> numbers_of_steps(Device& device, StepCapture* captured) {
    const std::vector<float> values = random_values(1000, 7);
    const Tensor x = upload(device, {1000}, values), y = device.make(Type::f32, {1000}),
                 z = device.make(Type::f32, {1000}), other = upload(device, {1000}, values);
    std::vector<float> seen;
    const auto look = [&] {
        for (const float value : device.values_of<float>(z)) seen.push_back(value);
    };
    for (int step = 1; step <= 16; ++step) {
        const MarkedStep marked(captured);
        device.zero(y);
        device.add(x, y);
        device.scale(y, 0.5f);
        device.add(y, z);
        if (step == 5) look();  // where later and earlier steps do not
        device.scale(z, step == 7 ? 0.25f : 0.75f);
        device.add(z, y);
        if (step == 9) device.add(other, z);    // a step of its own
        device.add(step >= 11 ? other : x, y);  // from there on another
        device.add(y, z);
        device.scale(z, 1.0f / static_cast<float>(step));  // another each time
        device.add(x, z);
        device.add(y, z);
        if (step == 13) return look(), seen;  // not all of a step
    }
    return seen;
}

TEST_P(StepCaptureTest, HasTheNumbersOfItsCalls) {
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    const auto without = numbers_of_steps(device(), nullptr);
    if (steps != nullptr) steps->set_capture(true);
    EXPECT_EQ(numbers_of_steps(device(), steps), without);
    EXPECT_EQ(numbers_of_steps(device(), steps), without)
        << "with other tensors than those that were captured";
    if (steps != nullptr) {
        EXPECT_EQ(steps->refusal(), "");
    }
}

INSTANTIATE_ON_EACH_DEVICE(StepCaptureTest);

}  // namespace
}  // namespace dp::trainer
