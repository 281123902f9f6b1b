// SPDX-License-Identifier: Apache-2.0
//
// gpt and unet2d as a whole, on every device: their sizes are the published ones, and the gradient of each
// parameter is the slope of the model's own loss along it (each operation has its test against float64:
// sequence_operations_test.cpp, image_operations_test.cpp).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "devices.hpp"
#include "slopes.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {
namespace {

class LargeModelTest : public OnEachDevice {
 protected:
    double loss_of(Model& model, const Batch& batch) {
        const Tensor metrics = device().make(Type::f64, {2});
        model.forward_backward(batch, 1, metrics);
        return device().values_of<double>(metrics)[0] / static_cast<double>(model.targets_per_sample());
    }

    // A small step along each parameter's gradient, to both sides: the slope is the gradient's norm, but for
    // float32's rounding and for the corners of ReLU that lie between.
    void check_gradients(Model& model, const Batch& batch, double furthest) {
        const double loss = loss_of(model, batch);
        EXPECT_GT(loss, 0);
        std::vector<std::vector<float>> gradients;
        for (const auto& parameter : model.parameters().all())
            gradients.push_back(device().values_of<float>(parameter.gradient));
        std::size_t number = 0, checked = 0;
        for (const auto& parameter : model.parameters().all()) {
            const auto& gradient = gradients[number++];
            double squares = 0;
            for (float value : gradient) squares += static_cast<double>(value) * static_cast<double>(value);
            const double norm = std::sqrt(squares);
            // Of steps of 0.001 the losses, of some samples together, would differ by 4e-6 at most: that is
            // lost in the rounding of float32.
            if (norm < 2e-3) continue;
            ++checked;
            const auto kept = device().values_of<float>(parameter.value);
            const double step = std::min(1e-4 / norm, furthest);
            auto moved = [&](double direction) {
                auto values = kept;
                for (std::size_t i = 0; i < values.size(); ++i)
                    values[i] +=
                        static_cast<float>(direction * step * static_cast<double>(gradient[i]) / norm);
                device().upload(values.data(), parameter.value);
                return loss_of(model, batch);
            };
            const double slope = (moved(1) - moved(-1)) / (2 * step);
            device().upload(kept.data(), parameter.value);
            EXPECT_NEAR(slope / norm, 1, 0.06) << parameter.name << ", gradient " << norm;
        }
        EXPECT_GT(checked, gradients.size() / 2) << "most gradients are zero: the test would prove nothing";
    }

    // Along single numbers, those with the largest gradients of each parameter. On the whole a gradient that
    // forgets what was dropped is as long as the right one, because what is kept is scaled up for it.
    void check_single_gradients(Model& model, const Batch& batch) {
        loss_of(model, batch);
        const auto& parameters = model.parameters().all();
        std::vector<std::vector<float>> gradients;
        for (const auto& parameter : parameters)
            gradients.push_back(device().values_of<float>(parameter.gradient));
        std::size_t checked = 0;
        for (const auto& parameter : parameters) {
            const auto& gradient = gradients[parameter.number];
            const auto kept = device().values_of<float>(parameter.value);
            std::vector<std::size_t> order(gradient.size());
            std::iota(order.begin(), order.end(), std::size_t{0});
            std::partial_sort(order.begin(), order.begin() + 3, order.end(),
                              [&](auto a, auto b) { return std::abs(gradient[a]) > std::abs(gradient[b]); });
            for (std::size_t i = 0; i < 3; ++i) {
                const auto expected = static_cast<double>(gradient[order[i]]);
                if (std::abs(expected) < 0.01) continue;  // lost in the rounding of float32
                ++checked;
                const double step = std::min(1e-3 / std::abs(expected), 0.02);
                const auto moved = [&](double by) {
                    auto values = kept;
                    values[order[i]] += static_cast<float>(by);
                    device().upload(values.data(), parameter.value);
                    return loss_of(model, batch);
                };
                const double slope = (moved(step) - moved(-step)) / (2 * step);
                device().upload(kept.data(), parameter.value);
                EXPECT_NEAR(slope / expected, 1, 0.05) << parameter.name << ", gradient " << expected;
            }
        }
        EXPECT_GT(checked, 2 * parameters.size()) << "most gradients are zero: the test would prove nothing";
    }

    Batch text(std::int64_t rows, const GptShape& shape) {
        Random random(5, 0);
        std::vector<std::int32_t> tokens, next;
        for (std::int64_t i = 0; i < rows * shape.sequence; ++i) {
            tokens.push_back(
                static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(shape.vocabulary))));
            next.push_back(
                static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(shape.vocabulary))));
        }
        return {device().copy_of<std::int32_t>(Type::i32, {rows, shape.sequence}, tokens),
                device().copy_of<std::int32_t>(Type::i32, {rows, shape.sequence}, next),
                {}};
    }

    Batch images(std::int64_t rows, std::int64_t side) {
        auto masks = random_values(rows * side * side, 7);
        for (float& value : masks) value = value > 0.2f ? 1.0f : 0.0f;
        return {upload(device(), {rows, 3 * side * side}, random_values(rows * 3 * side * side, 6)),
                upload(device(), {rows, side * side}, masks),
                {}};
    }
};

ModelShape small_gpt(bool recompute = false) {
    ModelShape shape;
    shape.gpt = {3, 24, 3, 10, 37, recompute};
    return shape;
}

TEST_P(LargeModelTest, GradientsOfGptAreTheSlopesOfItsLoss) {
    const auto shape = small_gpt();
    const auto model = find_model("gpt")->make(shape);
    model->place(device(), 1, 5);
    check_gradients(*model, text(3, shape.gpt), 0.1);
}

TEST_P(LargeModelTest, RecomputingChangesNothing) {
    std::vector<std::vector<float>> gradients;
    for (const bool recompute : {false, true}) {
        const auto shape = small_gpt(recompute);
        const auto model = find_model("gpt")->make(shape);
        model->place(device(), 1, 3);
        loss_of(*model, text(3, shape.gpt));
        gradients.push_back(device().values_of<float>(model->parameters().gradients()));
    }
    EXPECT_EQ(gradients[0], gradients[1]);
}

// ---- dropout of gpt, where the numbers that are left out depend on the batch's draw alone

// Of each kind alone.
std::vector<ModelShape> dropping_gpts(bool recompute = false) {
    std::vector<ModelShape> shapes(2, small_gpt(recompute));
    shapes[0].gpt.hidden_dropout = 0.3f;
    shapes[1].gpt.attention_dropout = 0.3f;
    return shapes;
}

TEST_P(LargeModelTest, GradientsOfGptWithDropoutAreTheSlopesOfItsLoss) {
    for (const auto& shape : dropping_gpts()) {
        SCOPED_TRACE(shape.gpt.attention_dropout);
        const auto model = find_model("gpt")->make(shape);
        model->place(device(), 1, 5);
        Batch batch = text(3, shape.gpt);
        batch.draw = {17, 6};
        check_single_gradients(*model, batch);
    }
}

TEST_P(LargeModelTest, RecomputingDropsTheSame) {
    for (const std::size_t kind : {std::size_t{0}, std::size_t{1}}) {
        std::vector<std::vector<float>> gradients;
        for (const bool recompute : {false, true}) {
            const auto shape = dropping_gpts(recompute)[kind];
            const auto model = find_model("gpt")->make(shape);
            model->place(device(), 1, 3);
            Batch batch = text(3, shape.gpt);
            batch.draw = {17, 6};
            loss_of(*model, batch);
            gradients.push_back(device().values_of<float>(model->parameters().gradients()));
        }
        EXPECT_EQ(gradients[0], gradients[1]);
    }
}

TEST_P(LargeModelTest, DropoutOfGptIsOfTheStepAndTheSamplesPlaceAndOfTrainingAlone) {
    for (const auto& shape : dropping_gpts()) {
        SCOPED_TRACE(shape.gpt.attention_dropout);
        const auto dropping = find_model("gpt")->make(shape), keeping = find_model("gpt")->make(small_gpt());
        for (Model* model : {dropping.get(), keeping.get()}) model->place(device(), 1, 4);
        const auto loss = [&](const Batch& all, std::int64_t first, std::int64_t rows, BatchDraw draw) {
            const auto view = [&](const Tensor& tensor) {
                return tensor.view(first * shape.gpt.sequence, {rows, shape.gpt.sequence});
            };
            return loss_of(*dropping, {view(all.x), view(all.target), draw});
        };
        const Batch batch = text(4, shape.gpt);
        const double whole = loss(batch, 0, 4, {17, 8});
        EXPECT_EQ(loss(batch, 0, 4, {17, 8}), whole);
        EXPECT_NEAR(loss(batch, 0, 3, {17, 8}) + loss(batch, 3, 1, {17, 11}), whole, 1e-6 * whole)
            << "two ranks";
        EXPECT_GT(std::abs(loss(batch, 0, 4, {18, 8}) - whole), 1e-4) << "another step";
        EXPECT_GT(std::abs(loss(batch, 0, 4, {17, 0}) - whole), 1e-4) << "other samples of the step";
        EXPECT_GT(std::abs(loss_of(*keeping, batch) - whole), 1e-4);
        const auto tested = [&](Model& model) {
            const Tensor metrics = device().make(Type::f64, {2});
            model.evaluate(batch, metrics);
            return device().values_of<double>(metrics)[0];
        };
        EXPECT_EQ(tested(*dropping), tested(*keeping)) << "a test drops nothing";
    }
}

TEST_P(LargeModelTest, GptBeginsWithTheDeviationThatItWasTold) {
    ModelShape shape = small_gpt();
    shape.gpt.vocabulary = 500;
    shape.gpt.initial_deviation = 0.006f;
    const auto model = find_model("gpt")->make(shape);
    model->place(device(), 1, 1);
    for (const auto& parameter : model->parameters().all()) {
        double expected = 0;
        if (parameter.name == "wte" || parameter.name == "h.1.mlp.c_fc.weight") expected = 0.006;
        if (parameter.name == "h.1.mlp.c_proj.weight") expected = 0.006 / std::sqrt(2 * 3);
        if (expected == 0) continue;
        double squares = 0;
        const auto values = device().values_of<float>(parameter.value);
        for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
        EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), expected, 0.05 * expected)
            << parameter.name;
    }
}

// They are part of what the ranks add up, the optimizer updates and a checkpoint holds.
TEST_P(LargeModelTest, TokensThatDoNotExistLearnNothing) {
    const auto shape = small_gpt();
    const auto model = find_model("gpt")->make(shape);
    model->place(device(), 1, 3);
    loss_of(*model, text(3, shape.gpt));
    const Parameter& table = model->parameters().all().front();
    ASSERT_EQ(table.name, "wte");
    ASSERT_EQ(table.spare.rows_of(37) - 37, 3) << "of 37 tokens, 8 at a time";
    for (const Tensor& tensor : {table.value, table.gradient}) {
        const Tensor spare = table.with_spare_rows(tensor).view(tensor.elements(), {3, shape.gpt.hidden});
        EXPECT_EQ(device().values_of<float>(spare),
                  std::vector<float>(static_cast<std::size_t>(spare.elements())));
    }
}

TEST_P(LargeModelTest, EvaluatingIsTheSameLoss) {
    const auto shape = small_gpt();
    const auto model = find_model("gpt")->make(shape);
    model->place(device(), 1, 3);
    const Batch batch = text(3, shape.gpt);
    const Tensor metrics = device().make(Type::f64, {2});
    model->evaluate(batch, metrics);
    const double mean = device().values_of<double>(metrics)[0] / 10;
    EXPECT_NEAR(mean, loss_of(*model, batch), 1e-9);
    EXPECT_NEAR(mean / 3, std::log(37), 0.2) << "an untrained model knows nothing";
}

TEST_P(LargeModelTest, GradientsOfUnet2dAreTheSlopesOfItsLoss) {
    ModelShape shape;
    shape.image_size = 64;
    shape.features = 4;
    const auto model = find_model("unet2d")->make(shape);
    model->place(device(), 1, 7);
    check_gradients(*model, images(6, 64), 0.001);
}

TEST_P(LargeModelTest, Unet2dTestsWithItsRunningStatistics) {
    ModelShape shape;
    shape.image_size = 16;
    shape.features = 4;
    const auto model = find_model("unet2d")->make(shape);
    model->place(device(), 1, 4);
    const Batch batch = images(4, 16);
    auto tested = [&] {
        const Tensor metrics = device().make(Type::f64, {2});
        model->evaluate(batch, metrics);
        return device().values_of<double>(metrics)[0];
    };
    const double first = tested();
    EXPECT_EQ(tested(), first) << "testing changes nothing";
    const auto before = device().values_of<float>(model->parameters().buffers());
    double trained = 0;
    for (int step = 0; step < 100; ++step) trained = loss_of(*model, batch);  // no parameter moves
    EXPECT_NE(device().values_of<float>(model->parameters().buffers()), before);
    EXPECT_NEAR(tested(), trained, 0.002 * trained)
        << "after 100 steps they are the batch's, but for the variances' n / (n - 1)";
    EXPECT_GT(std::abs(first - trained), 0.005 * trained) << "the test would prove nothing";
}

INSTANTIATE_ON_EACH_DEVICE(LargeModelTest);

TEST(ModelSizesTest, AreThePublishedOnes) {
    auto gpt = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
        ModelShape shape;
        shape.gpt = {layers, hidden, heads, 1024, 50257};
        return find_model("gpt")->make(shape);
    };
    EXPECT_EQ(gpt(12, 768, 12)->parameters().count(), 124'439'808);
    EXPECT_EQ(gpt(12, 768, 32)->parameters().count(), 124'439'808) << "the DLI tutorial's 32 heads";
    EXPECT_EQ(gpt(24, 1024, 16)->parameters().count(), 354'823'168);
    EXPECT_EQ(gpt(36, 1280, 20)->parameters().count(), 774'030'080);
    EXPECT_EQ(gpt(48, 1600, 25)->parameters().count(), 1'557'611'200);
    // llm.c's formula, 803.5 MFLOP a token with its vocabulary of 50304.
    EXPECT_NEAR(3 * gpt(12, 768, 12)->forward_flops_per_sample() / 1024, 803.2e6, 0.5e6);

    const auto unet = find_model("unet2d")->make({});
    EXPECT_EQ(unet->parameters().count(), 7'763'041);
    EXPECT_NEAR(unet->forward_flops_per_sample(), 24.14e9, 0.02e9);

    for (const auto& [name, count] : {std::pair{"linear", 1'004'001}, {"ffn", 235'146}, {"cnn", 1'199'882}})
        EXPECT_EQ(find_model(name)->make({})->parameters().count(), count) << name;
}

}  // namespace
}  // namespace dp::trainer
