// SPDX-License-Identifier: Apache-2.0
//
// Ranks that divide a vocabulary make of it, together, what one makes alone: the embedding, the loss, and their gradients.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "devices.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/base/random.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kWords = 29, kTokens = 12, kSequence = 4, kColumns = 5;

std::vector<float> drawn(std::int64_t count, std::uint64_t seed) {
    Random random(seed, 0);
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& number : numbers) number = 3 * random.normal();
    return numbers;
}

struct DividedVocabulary : ::testing::TestWithParam<std::int64_t> {
    std::unique_ptr<Device> device = open_cpu(1);
    Tensor tokens = device->make(Type::i32, {kTokens / kSequence, kSequence});
    std::vector<std::int32_t> words;

    DividedVocabulary() {
        Random random(3, 0);
        for (std::int64_t i = 0; i < kTokens; ++i)
            words.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(kWords))));
        words.front() = 0;
        words.back() = kWords - 1;
        device->upload(words.data(), tokens);
    }
    Tensor of(const std::vector<float>& numbers, Shape shape) {
        return device->copy_of<float>(Type::f32, std::move(shape), numbers);
    }
    std::vector<Shard> parts() const {
        std::vector<Shard> all;
        for (std::int64_t rank = 0; rank < GetParam(); ++rank)
            all.push_back(shard_of(kWords, rank, GetParam()));
        return all;
    }
};

TEST_P(DividedVocabulary, EmbedsAsTheWhole) {
    const auto numbers = drawn(kWords * kColumns, 1);
    const Tensor positions = of(drawn(kSequence * kColumns, 2), {kSequence, kColumns});
    const Tensor whole = device->make(Type::f32, {kTokens, kColumns}),
                 sum = device->make(Type::f32, {kTokens, kColumns});
    device->embed(tokens, of(numbers, {kWords, kColumns}), positions, whole);
    for (const Shard& part : parts()) {
        const std::vector<float> rows(numbers.begin() + part.first * kColumns,
                                      numbers.begin() + (part.first + part.count) * kColumns);
        const Tensor y = device->make(Type::f32, {kTokens, kColumns});
        device->embed_part(tokens, of(rows, {part.count, kColumns}), part,
                           part.first == 0 ? positions : Tensor(), y);
        device->add(y, sum);
    }
    EXPECT_EQ(device->values_of<float>(sum), device->values_of<float>(whole))
        << "to the bit: all but one add zeros";
}

TEST_P(DividedVocabulary, HasTheGradientsOfTheWholeEmbedding) {
    const Tensor dy = of(drawn(kTokens * kColumns, 4), {kTokens, kColumns});
    const Tensor d_table = device->make(Type::f32, {kWords, kColumns}),
                 d_positions = device->make(Type::f32, {kSequence, kColumns});
    device->embed_backward(tokens, dy, d_table, d_positions);
    const auto whole = device->values_of<float>(d_table);
    for (const Shard& part : parts()) {
        const Tensor rows = device->make(Type::f32, {part.count, kColumns}),
                     places = device->make(Type::f32, {kSequence, kColumns});
        device->embed_part_backward(tokens, dy, part, rows, places);
        const std::vector<float> expected(whole.begin() + part.first * kColumns,
                                          whole.begin() + (part.first + part.count) * kColumns);
        EXPECT_EQ(device->values_of<float>(rows), expected);
        EXPECT_EQ(device->values_of<float>(places), device->values_of<float>(d_positions));
    }
}

TEST_P(DividedVocabulary, HasTheLossAndTheGradientsOfTheWholeSoftmax) {
    auto numbers = drawn(kTokens * kWords, 5);
    std::fill_n(numbers.begin(), kWords, 80.0f);  // all alike: the first of them is the prediction
    numbers[kWords + 3] = 120;                    // far above the others, whose exponentials vanish
    const Tensor labels = tokens.view(0, {kTokens, 1});
    const Tensor metrics = device->make(Type::f64, {2}),
                 gradient = device->make(Type::f32, {kTokens, kWords});
    device->softmax_cross_entropy(of(numbers, {kTokens, kWords}), kWords, labels, 0.5f, metrics, gradient);
    const auto expected = device->values_of<double>(metrics);
    EXPECT_GE(expected[1], 1) << "no prediction is right, so none is tested";
    const auto whole = device->values_of<float>(gradient);

    constexpr std::int64_t kStride = kWords + 3;  // rows have padding
    std::vector<Tensor> logits;
    const Tensor notes = device->make(Type::f32, {GetParam(), kTokens * kSoftmaxNumbers});
    for (const Shard& part : parts()) {
        std::vector<float> rows(static_cast<std::size_t>(kTokens * kStride), 1e30f);
        for (std::int64_t row = 0; row < kTokens; ++row)
            std::copy_n(numbers.begin() + row * kWords + part.first, part.count,
                        rows.begin() + row * kStride);
        logits.push_back(of(rows, {kTokens, kStride}));
        const auto rank = static_cast<std::int64_t>(logits.size() - 1);
        device->softmax_part(logits.back(), part, labels,
                             notes.view(rank * kTokens * kSoftmaxNumbers, {kTokens, kSoftmaxNumbers}));
    }
    std::size_t rank = 0;
    for (const Shard& part : parts()) {
        device->zero(metrics);
        const Tensor& here = logits[rank++];
        device->softmax_cross_entropy_of_parts(here, part, labels, notes, 0.5f, metrics, here);
        const auto got = device->values_of<double>(metrics);
        EXPECT_NEAR(got[0], expected[0], 1e-5 * expected[0]);
        EXPECT_EQ(got[1], expected[1]);
        const auto gradients = device->values_of<float>(here);
        for (std::int64_t row = 0; row < kTokens; ++row)
            for (std::int64_t word = 0; word < part.count; ++word)
                ASSERT_NEAR(gradients[static_cast<std::size_t>(row * kStride + word)],
                            whole[static_cast<std::size_t>(row * kWords + part.first + word)], 1e-6);
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DividedVocabulary, ::testing::Values(1, 2, 3, 4, 29));

}  // namespace
}  // namespace dp::trainer
