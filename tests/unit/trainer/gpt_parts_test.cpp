// SPDX-License-Identifier: Apache-2.0
//
// gpt on ranks that divide its layers: its loss, the gradients of each rank's part, what dropout drops. Without a training.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "devices.hpp"
#include "thread_grid.hpp"
#include "trainer/devices/attention_dropout.hpp"
#include "trainer/models/gpt.hpp"

namespace dp::trainer {
namespace {

GptShape small_shape() {
    GptShape shape{3, 24, 4, 10, 37};
    shape.initial_deviation = 0.2f;
    return shape;
}

Batch text(Device& device, const GptShape& shape, std::int64_t rows) {
    Random random(5, 0);
    std::vector<std::int32_t> tokens, next;
    for (std::int64_t i = 0; i < rows * shape.sequence; ++i) {
        tokens.push_back(
            static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(shape.vocabulary))));
        next.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(shape.vocabulary))));
    }
    return {device.copy_of<std::int32_t>(Type::i32, {rows, shape.sequence}, tokens),
            device.copy_of<std::int32_t>(Type::i32, {rows, shape.sequence}, next),
            {11, 4}};
}

// A rank's part of gpt, placed, which sums over the other ranks.
struct GptOfRank {
    std::unique_ptr<Device> device = open_cpu(1);
    std::unique_ptr<LanguageModel> model;
    Tensor metrics = device->make(Type::f64, {2});
    Batch batch;
    Communicator* tensor_ranks;

    GptOfRank(GptShape shape, Communicator& tensor, std::int64_t rows = 2) {
        shape.layout.tensor_rank = tensor.rank();
        shape.layout.tensor_ranks = tensor.size();
        shape.layout.divides_tokens = shape.layout.divides_tokens && tensor.size() > 1;
        tensor_ranks = &tensor;
        model = make_language_model(shape);
        if (tensor.size() > 1)
            model->set_tensor_ranks(
                {[&tensor](const Tensor& one) { EXPECT_TRUE(tensor.all_reduce(one, Reduction::sum)); }, [] {},
                 [&tensor](const Tensor& one) { EXPECT_TRUE(tensor.all_gather(one)); },
                 [&tensor](const Tensor& one) { EXPECT_TRUE(tensor.reduce_scatter(one)); }});
        model->place(*device, 1, rows);
        batch = text(*device, shape, rows);
    }
    double train() {
        device->zero(metrics);
        model->forward_backward(batch, 0.5f, metrics);
        for (const Parameter& one : model->parameters().all())
            if (one.is_of_some_tokens) {
                EXPECT_TRUE(tensor_ranks->all_reduce(one.gradient, Reduction::sum));
            }
        return device->values_of<double>(metrics)[0];
    }
    std::vector<float> gradient(const Parameter& one) { return device->values_of<float>(one.gradient); }
};

// How many ranks, whether they recompute, and whether they divide the tokens.
struct GptPartsTest : ::testing::TestWithParam<std::tuple<int, bool, bool>> {
    const std::uint32_t ranks = static_cast<std::uint32_t>(std::get<0>(GetParam()));
    GptShape shape() const {
        GptShape shape = small_shape();
        shape.recompute = std::get<1>(GetParam());
        shape.layout.divides_tokens = std::get<2>(GetParam());
        if (shape.layout.divides_tokens) shape.sequence = 12;
        return shape;
    }
};

TEST_P(GptPartsTest, LossAndGradientsAreThoseOfTheWhole) {
    for (const float dropped : {0.0f, 0.2f}) {
        GptShape some = shape();
        some.hidden_dropout = some.attention_dropout = dropped;
        GptOfRank one(some, Ranks::alone());
        const double loss = one.train();
        ThreadGrid({ranks, 1, 1}).run([&](const Ranks& mine) {
            GptOfRank part(some, mine.tensor);
            EXPECT_NEAR(part.train() / loss, 1, 1e-6);
            for (const Parameter& parameter : part.model->parameters().all()) {
                const auto whole = one.gradient(one.model->parameters().all()[parameter.number]);
                const auto expected = taken_from(whole, parameter.part), got = part.gradient(parameter);
                const float largest = std::abs(
                    *std::ranges::max_element(whole, {}, [](float number) { return std::abs(number); }));
                // The gradient of the keys' biases is 0: the softmax does not see what all scores of a query have in common.
                for (std::size_t i = 0; i < got.size(); ++i)
                    ASSERT_NEAR(got[i], expected[i], 2e-5f * largest) << parameter.name << " " << i;
            }
        });
    }
}

// Against the loss itself: all ranks evaluate it while one of them has moved a number.
TEST_P(GptPartsTest, GradientsOfEveryPartAreTheSlopesOfTheLoss) {
    const GptShape some = shape();
    ThreadGrid({ranks, 1, 1}).run([&](const Ranks& mine) {
        GptOfRank part(some, mine.tensor);
        part.train();
        const auto& parameters = part.model->parameters().all();
        std::vector<std::vector<float>> gradients;
        for (const Parameter& one : parameters) gradients.push_back(part.gradient(one));
        std::size_t checked = 0;
        for (std::int64_t mover = 0; mover < mine.tensor.size(); ++mover)
            for (const Parameter& one : parameters) {
                const auto& gradient = gradients[one.number];
                const auto at = static_cast<std::size_t>(
                    std::ranges::max_element(gradient, {}, [](float g) { return std::abs(g); }) -
                    gradient.begin());
                const bool moves = mine.tensor.rank() == mover;
                // What all ranks have they move together.
                const bool moves_too = one.part.is_whole();
                const double step = 5e-3;
                const auto kept = part.device->values_of<float>(one.value);
                const auto loss_at = [&](double by) {
                    auto values = kept;
                    if (moves || moves_too) values[at] += static_cast<float>(by);
                    part.device->upload(values.data(), one.value);
                    return part.train() * 0.5 / static_cast<double>(some.sequence);
                };
                const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
                part.device->upload(kept.data(), one.value);
                const auto expected = static_cast<double>(gradient[at]);
                if (!moves || std::abs(expected) < 0.01) continue;
                ++checked;
                EXPECT_NEAR(slope / expected, 1, 0.05) << one.name;
            }
        EXPECT_GT(checked, parameters.size() / 2);
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GptPartsTest,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool(),
                                            ::testing::Bool()));

TEST(GptParts, HeadsDropWhatTheyDropInTheWhole) {
    Attention whole{10, 4, {0.3f, 99, 40}};
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const Attention part{10, 2, whole.dropout, rank * 2, 4};
        for (std::int64_t sequence = 0; sequence < 3; ++sequence)
            for (std::int64_t head = 0; head < 2; ++head)
                EXPECT_EQ(AttentionDropout(part, sequence * 2 + head).four(3, 2),
                          AttentionDropout(whole, sequence * 4 + rank * 2 + head).four(3, 2));
    }
}

TEST(GptParts, TakeAPartOfTheMemory) {
    GptShape whole = small_shape(), part = whole;
    part.layout = {1, 2};
    const auto all = make_language_model(whole), some = make_language_model(part);
    EXPECT_LT(some->activations_per_sample(), all->activations_per_sample());
    part.layout.divides_tokens = true;
    const auto fewer = make_language_model(part);
    // What is kept of a layer is divided, all of it; and there is room to exchange what is of all tokens (10 of 24 numbers).
    EXPECT_EQ(2 * (fewer->activations_per_sample() - fewer->statistics_per_sample() - 10 * 24),
              all->activations_per_sample() - all->statistics_per_sample());
    EXPECT_LT(fewer->activations_per_sample(), some->activations_per_sample());
    EXPECT_LT(some->parameters().count(), all->parameters().count());
    EXPECT_EQ(some->parameters().whole_count(), all->parameters().count());
    EXPECT_EQ(some->forward_flops_per_sample(), all->forward_flops_per_sample());
}

}  // namespace
}  // namespace dp::trainer
