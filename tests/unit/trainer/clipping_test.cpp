// SPDX-License-Identifier: Apache-2.0
//
// What the norm of the gradients decides about a step, on the device and in a training.
#include "trainer/devices/clipping.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "devices.hpp"
#include "trainer/devices/step_capture.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Clipping, IsAsPyTorchClipsAndSkipsWhatIsNaNOrInfinite) {
    struct Case {
        double squares, largest;
        float factor;
        std::int32_t skips;
    };
    for (const auto& [squares, largest, factor, skips] : std::vector<Case>{
             {0, 1, 1, 0},
             {1, 1, 1, 0},  // as large as it may be
             {4, 1, static_cast<float>(1 / (2 + 1e-6)), 0},
             {1e300, 0.5, static_cast<float>(0.5 / (1e150 + 1e-6)), 0},
             {4, kInfinity, 1, 0},
             {kInfinity, 1, 1, 1},
             {kInfinity, kInfinity, 1, 1},
             {kNaN, 1, 1, 1},
             {kNaN, kInfinity, 1, 1},
         }) {
        const Clipping clipping = clipping_of(squares, largest);
        EXPECT_EQ(clipping.factor, factor) << squares << ", " << largest;
        EXPECT_EQ(clipping.skips, skips) << squares << ", " << largest;
        EXPECT_TRUE(clipping.squares == squares || std::isnan(squares));
    }
}

class ClippingTest : public OnEachDevice {
 protected:
    static constexpr std::int64_t kCount = 1000;

    Clipping clipping_in(const Tensor& tensor) {
        const auto numbers = device().values_of<double>(tensor);
        Clipping clipping{};
        std::memcpy(&clipping, numbers.data(), sizeof clipping);
        return clipping;
    }
    Tensor clip(const std::vector<double>& sums, std::int64_t rows, double largest) {
        const auto count = static_cast<std::int64_t>(sums.size());
        const Tensor clipping = device().make(Type::f64, {kClipping});
        device().clip(device().copy_of<double>(Type::f64, {rows, count / rows}, sums), largest, clipping);
        return clipping;
    }
    // Parameters and state of one step.
    std::vector<std::vector<float>> step(bool adam, const std::vector<float>& gradients,
                                         const Clipping* clipping) {
        const Tensor p = upload(device(), {kCount}, random_values(kCount, 1)),
                     m = upload(device(), {kCount}, random_values(kCount, 2)),
                     v = upload(device(), {kCount}, random_values(kCount, 3, 0, 1)),
                     g = upload(device(), {kCount}, gradients);
        if (adam)
            device().adam(p, g, m, v, {0.01f, 1.5f, 0.9f, 0.999f, 1e-8f, 0.99f, clipping}, {});
        else
            device().sgd(p, g, m, {0.01f, 0.9f, 0, clipping});
        EXPECT_EQ(device().values_of<float>(g), gradients) << "the gradients stay as they are";
        return {device().values_of<float>(p), device().values_of<float>(m), device().values_of<float>(v)};
    }
};

TEST_P(ClippingTest, AddsTheFirstNumbersOfTheRows) {
    const Clipping found = clipping_in(clip({9, 100, 16, 200, 0, kNaN}, 3, 2));
    EXPECT_EQ(found.squares, 25);
    EXPECT_EQ(found.factor, static_cast<float>(2 / (5 + 1e-6)));
    EXPECT_EQ(found.skips, 0);
    EXPECT_EQ(clipping_in(clip({1, 1, kNaN}, 3, 2)).skips, 1);
    // Always in this order.
    EXPECT_EQ(clipping_in(clip({1, 1e-16, 1e-16}, 3, 2)).squares, 1 + 1e-16 + 1e-16);
}

TEST_P(ClippingTest, AStepTakesTheGradientsTimesTheFactor) {
    const auto gradients = random_values(kCount, 4);
    const Tensor clipping = clip({4}, 1, 0.7), none = clip({4}, 1, kInfinity);
    auto scaled = gradients;
    for (float& one : scaled) one *= static_cast<float>(0.7 / (2 + 1e-6));
    for (const bool adam : {false, true}) {
        EXPECT_EQ(step(adam, gradients, clipping.data<Clipping>()), step(adam, scaled, nullptr)) << adam;
        EXPECT_EQ(step(adam, gradients, none.data<Clipping>()), step(adam, gradients, nullptr)) << adam;
        EXPECT_NE(step(adam, gradients, nullptr), step(adam, scaled, nullptr)) << adam;
    }
}

TEST_P(ClippingTest, AStepThatIsSkippedChangesNothing) {
    const Tensor skips = clip({kInfinity}, 1, 1);
    auto bad = random_values(kCount, 4);
    bad[7] = std::numeric_limits<float>::infinity();
    for (const bool adam : {false, true}) {
        const auto after = step(adam, bad, skips.data<Clipping>());
        EXPECT_EQ(after[0], random_values(kCount, 1)) << adam;
        EXPECT_EQ(after[1], random_values(kCount, 2)) << adam;
        EXPECT_EQ(after[2], random_values(kCount, 3, 0, 1)) << adam;
    }
}

TEST_P(ClippingTest, ADownloadHasWhatTheTensorHadWhenItWasStarted) {
    const auto values = random_values(kCount, 5);
    const Tensor tensor = upload(device(), {kCount}, values);
    const auto download = device().make_download(tensor.bytes());
    for (int i = 0; i < 2; ++i) {
        download->start(tensor);
        device().zero(tensor);
        const auto bytes = download->wait();
        ASSERT_EQ(bytes.size(), tensor.bytes());
        EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0) << i;
        device().upload(values.data(), tensor);
    }
    download->start(tensor.view(0, {3}));
    EXPECT_EQ(download->wait().size(), 3 * sizeof(float));
    download->start(tensor);  // nobody waits for it
}

class Nobody final : public Observer {};

Dataset with_infinite_targets(const std::vector<std::size_t>& of_samples) {
    Dataset data = make_linear_regression();
    const float infinite = std::numeric_limits<float>::infinity();
    for (const std::size_t sample : of_samples)
        std::memcpy(data.train.targets.bytes.data() + sample * sizeof infinite, &infinite, sizeof infinite);
    return data;
}

Result<Outcome> train_linear(const Settings& settings, const Dataset& data) {
    const auto device = open_cpu(1);
    const ModelInfo& info = *find_model("linear");
    const auto model = info.make({});
    SingleCommunicator alone;
    Nobody nobody;
    return train(info, *model, data, settings, *device, alone, nobody);
}

// An average has the host wait for each step before it is queued: the same training, decided in the other way.
TEST(SkippedSteps, AreTheSameWhetherTheHostWaitsForThemOrNot) {
    const Dataset data = with_infinite_targets({3, 400, 401, 900});
    for (const auto optimizer : {Optimization::sgd, Optimization::adam})
        for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.05)}) {
            Settings settings;
            settings.batch = 30;
            settings.epochs = 2;
            settings.optimizer = optimizer;
            settings.weight_decay = 0.01;
            settings.skip_bad_steps = true;
            settings.clip = clip;
            Settings waiting = settings;
            waiting.ema_decay = 0.9;
            const auto one = train_linear(settings, data), other = train_linear(waiting, data);
            ASSERT_TRUE(one) << one.error().message;
            ASSERT_TRUE(other) << other.error().message;
            EXPECT_GT(one->skipped, 4);
            EXPECT_EQ(one->skipped, other->skipped);
            EXPECT_EQ(one->last.skipped, other->last.skipped);
            EXPECT_EQ(one->last.loss, other->last.loss);
            EXPECT_EQ(one->parameters_hash, other->parameters_hash);
        }
}

// Captured steps: a skipped one leaves the number of Adam's next step as it was, of which the graphs know nothing.
TEST_P(ClippingTest, SkipsTheSameStepsWhereTheyAreCaptured) {
    std::vector<std::size_t> some;
    for (std::size_t i = 0; i < 1000; i += 3) some.push_back(i);
    const Dataset data = with_infinite_targets(some);
    const ModelInfo& info = *find_model("linear");
    Settings settings;
    settings.batch = 2;
    settings.max_steps = 10;
    settings.clip = 0.05;
    auto* const steps = dynamic_cast<StepCapture*>(&device());
    std::vector<std::uint64_t> hashes;
    for (const bool captured : {false, true}) {
        if (steps != nullptr) steps->set_capture(captured);
        const auto model = info.make({});
        SingleCommunicator alone;
        Nobody nobody;
        const auto outcome = train(info, *model, data, settings, device(), alone, nobody);
        ASSERT_TRUE(outcome) << outcome.error().message;
        EXPECT_GT(outcome->skipped, 2);
        EXPECT_LT(outcome->skipped, 8);
        hashes.push_back(outcome->parameters_hash);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(SkippedSteps, TheTenthInARowEndsTheTrainingAtThatStep) {
    std::vector<std::size_t> all(1000);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    Settings settings;
    settings.batch = 10;
    settings.epochs = 1;
    settings.clip = 1;
    class Steps final : public Observer {
     public:
        void on_step(std::int64_t, std::int64_t step, const Schedule&) override { last = step; }
        std::int64_t last = 0;
    } steps;
    const auto device = open_cpu(1);
    const ModelInfo& info = *find_model("linear");
    const auto model = info.make({});
    SingleCommunicator alone;
    const auto outcome = train(info, *model, with_infinite_targets(all), settings, *device, alone, steps);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message.substr(0, 66),
              "step 10: for 10 steps in a row the gradients were NaN or infinite;");
    EXPECT_EQ(steps.last, 9);
}

INSTANTIATE_ON_EACH_DEVICE(ClippingTest);

}  // namespace
}  // namespace dp::trainer
