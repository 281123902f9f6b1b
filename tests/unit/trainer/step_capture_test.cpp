// SPDX-License-Identifier: Apache-2.0
//
// Captured steps (devices/step_capture.hpp): whatever a step calls, and wherever the host looks, the numbers are those of the calls.
#include "trainer/devices/step_capture.hpp"

#include <dlfcn.h>

#include "devices.hpp"
#include "small_models.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

struct StepCaptureTest : OnEachDevice {};

// What the steps leave, and what the host saw within some of them.
std::vector<float> numbers_of_steps(Device& device, StepCapture* captured) {
    const std::vector<float> values = random_values(1000, 7);
    const Tensor x = upload(device, {1000}, values), y = device.make(Type::f32, {1000}),
                 zeroed = device.make(Type::f32, {10}), other_zeroed = device.make(Type::f32, {20}),
                 z = device.make(Type::f32, {1000}), other = upload(device, {1000}, values);
    std::vector<float> seen;
    const auto look = [&] {
        for (const float value : device.values_of<float>(z)) seen.push_back(value);
    };
    for (int step = 1; step <= 16; ++step) {
        const MarkedStep marked(captured);
        device.zero(y);
        device.zero(step == 6 ? other_zeroed : zeroed);  // another in one step
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

class Nobody final : public Observer {
 public:
    void on_step(std::int64_t, std::int64_t, const Schedule&) override {}
    void on_epoch(const EpochReport&, const Schedule&) override {}
};

TEST_P(StepCaptureTest, BeginsAfreshWithAnotherTraining) {
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    if (steps != nullptr) steps->set_capture(true);
    const Tensor x = upload(device(), {10}, random_values(10, 7)), y = device().make(Type::f32, {10});
    for (int step = 0; step < 400; ++step) {
        const MarkedStep marked(steps);
        for (int i = 0; i < 2 + step / 2 % 2; ++i) device().add(x, y);
    }
    if (steps != nullptr) {
        EXPECT_EQ(steps->refusal(), "its steps differ too often");
    }
    const ModelInfo& info = *find_model("linear");
    const auto model = info.make(shape());
    Settings settings;
    settings.batch = 2;
    SingleCommunicator alone;
    Nobody nobody;
    const auto done = repeat_step(info, *model, data_for(info), settings, device(), alone, 4, nobody);
    EXPECT_TRUE(done) << done.error().message;
    if (steps != nullptr) {
        EXPECT_EQ(steps->refusal(), "");
    }
}

// Steps that are skipped end before the others do.
TEST_P(StepCaptureTest, GoesOnAfterShortSteps) {
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    if (steps == nullptr) GTEST_SKIP() << "this device captures nothing";
    steps->set_capture(true);
    const Tensor x = upload(device(), {10}, random_values(10, 7)), y = device().make(Type::f32, {10});
    for (int step = 0; step < 400; ++step) {
        const MarkedStep marked(steps);
        for (int i = 0; i < 3; ++i) device().add(x, y);
        device().synchronize();  // looks whether it is to be skipped
        if (step % 4 == 3) continue;
        for (int i = 0; i < 3; ++i) device().add(y, x);
    }
    EXPECT_EQ(steps->refusal(), "");
}

// How often the host has queued something on the emulated GPU; nothing on others.
std::optional<std::uint64_t> launches() {
    void* const emulator = dlopen("libcuda_emulator.so", RTLD_NOW | RTLD_NOLOAD);
    if (emulator == nullptr) return std::nullopt;
    const auto said =
        reinterpret_cast<unsigned long long (*)()>(dlsym(emulator, "dp_cuda_emulator_launches"));
    dlclose(emulator);
    return said();
}

// No graph's node can be set to other memory of a library's call, so it is made by itself until it stays there. Twice, as a model
// does that goes back to what it had.
TEST_P(StepCaptureTest, CapturesAgainWhatALibraryIsCalledWithOnceItStays) {
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    if (steps == nullptr) GTEST_SKIP() << "this device captures nothing";
    steps->set_capture(true);
    const Tensor x = upload(device(), {8, 16}, random_values(128, 7)),
                 w = upload(device(), {4, 16}, random_values(64, 8)),
                 other = upload(device(), {4, 16}, random_values(64, 9)),
                 b = upload(device(), {4}, random_values(4, 10)), y = device().make(Type::f32, {8, 4}),
                 sum = device().make(Type::f32, {8, 4});
    const auto product = [&](const Tensor& by) {
        device().zero(sum);
        device().linear(x, by, b, Activation::none, y);
        device().add(y, sum);
    };
    const auto alone = [&](const Tensor& by) {
        product(by);
        return device().values_of<float>(sum);
    };
    const auto of_w = alone(w), of_other = alone(other);
    ASSERT_NE(of_w, of_other);
    for (int step = 1; step <= 30; ++step) {
        const bool is_other = step > 10 && step <= 20;
        const auto before = launches();
        {
            const MarkedStep marked(steps);
            product(is_other ? other : w);
        }
        const auto after = launches();
        // The first step with it is noted, the second one is compared, and after that it is captured.
        if (step % 10 > 3 || step % 10 == 0) {
            EXPECT_EQ(after.value_or(1) - before.value_or(0), 1U) << "step " << step << " is one graph";
        }
        EXPECT_EQ(device().values_of<float>(sum), is_other ? of_other : of_w) << "step " << step;
    }
    EXPECT_EQ(steps->refusal(), "");
}

// Else each step would be captured again, until nothing is captured any more.
TEST_P(StepCaptureTest, LeavesOutWhatALibraryIsCalledWithAnewInEachStep) {
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    if (steps == nullptr) GTEST_SKIP() << "this device captures nothing";
    steps->set_capture(true);
    const Tensor x = upload(device(), {8, 16}, random_values(128, 7)),
                 w = upload(device(), {4, 16}, random_values(64, 8)),
                 other = upload(device(), {4, 16}, random_values(64, 9)),
                 b = upload(device(), {4}, random_values(4, 10)), y = device().make(Type::f32, {8, 4}),
                 sum = device().make(Type::f32, {8, 4});
    for (int step = 1; step <= 100; ++step) {
        const MarkedStep marked(steps);
        device().zero(sum);
        device().add(sum, y);
        device().linear(x, step % 2 == 0 ? other : w, b, Activation::none, y);
        device().add(y, sum);
        device().add(y, sum);
    }
    EXPECT_EQ(steps->refusal(), "");
}

// From then on graphs end there.
TEST_P(StepCaptureTest, HasGraphsOnBothSidesOfWhereTheHostLooks) {
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    if (steps == nullptr) GTEST_SKIP() << "this device captures nothing";
    steps->set_capture(true);
    const Tensor x = upload(device(), {10}, random_values(10, 7)), y = device().make(Type::f32, {10});
    for (int step = 0; step < 100; ++step) {
        const MarkedStep marked(steps);
        for (int i = 0; i < 6; ++i) {
            device().add(x, y);
            if (i == 2 && step >= 10) device().synchronize();
        }
    }
    EXPECT_EQ(steps->refusal(), "");
}

INSTANTIATE_ON_EACH_DEVICE(StepCaptureTest);

}  // namespace
}  // namespace dp::trainer
