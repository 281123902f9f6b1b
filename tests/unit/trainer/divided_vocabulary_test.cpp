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

constexpr std::int64_t kTokens = 12, kSequence = 4;

std::vector<float> drawn(std::int64_t count, std::uint64_t seed) {
    Random random(seed, 0);
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& number : numbers) number = 3 * random.normal();
    return numbers;
}

// A vocabulary, and how many numbers a token has: an odd one, and one of whole packs of 16 bytes.
struct Vocabulary {
    std::int64_t words, columns;
    std::vector<std::int32_t> tokens;

    Vocabulary(std::int64_t count, std::int64_t width) : words(count), columns(width) {
        Random random(3, 0);
        for (std::int64_t i = 0; i < kTokens; ++i)
            tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(words))));
        tokens.front() = 0;
        tokens.back() = static_cast<std::int32_t>(words - 1);
        tokens[5] = tokens[2];  // twice
    }
    std::vector<Shard> parts(std::int64_t ranks) const {
        std::vector<Shard> all;
        for (std::int64_t rank = 0; rank < ranks; ++rank) all.push_back(shard_of(words, rank, ranks));
        return all;
    }
};

class DividedVocabulary : public OnEachDeviceInEachPrecision {
 protected:
    const std::vector<Vocabulary> vocabularies_{{29, 5}, {613, 24}};

    Tensor tokens_of(const Vocabulary& of) {
        return device().copy_of<std::int32_t>(Type::i32, {kTokens / kSequence, kSequence}, of.tokens);
    }
};

std::vector<std::int64_t> ranks_that_divide(const Vocabulary& one) {
    return {1, 2, 3, 4, std::min<std::int64_t>(one.words, 29)};
}

TEST_P(DividedVocabulary, EmbedsAsTheWhole) {
    for (const Vocabulary& one : vocabularies_) {
        const Tensor tokens = tokens_of(one);
        const auto numbers = drawn(one.words * one.columns, 1);
        const Tensor positions = flowing({kSequence, one.columns}, drawn(kSequence * one.columns, 2)),
                     whole = flowing({kTokens, one.columns});
        device().embed(tokens, flowing({one.words, one.columns}, numbers), positions, whole);
        for (const std::int64_t ranks : ranks_that_divide(one)) {
            const Tensor sum = flowing({kTokens, one.columns});
            for (const Shard& part : one.parts(ranks)) {
                const std::vector<float> rows(numbers.begin() + part.first * one.columns,
                                              numbers.begin() + (part.first + part.count) * one.columns);
                const Tensor y = flowing({kTokens, one.columns}, drawn(kTokens * one.columns, 9));
                device().embed_part(tokens, flowing({part.count, one.columns}, rows), part,
                                    part.first == 0 ? positions : Tensor(), y);
                device().add(y, sum);
            }
            EXPECT_EQ(values(sum), values(whole)) << "to the bit: all but one add zeros";
        }
    }
}

TEST_P(DividedVocabulary, HasTheGradientsOfTheWholeEmbedding) {
    for (const Vocabulary& one : vocabularies_) {
        const Tensor tokens = tokens_of(one);
        const Tensor dy = flowing({kTokens, one.columns}, drawn(kTokens * one.columns, 4));
        // They are added to what is there.
        const auto before = drawn(one.words * one.columns, 6);
        const Tensor d_table = floats({one.words, one.columns}, before),
                     d_positions = floats({kSequence, one.columns});
        device().embed_backward(tokens, dy, d_table, d_positions);
        const auto whole = values(d_table);
        ASSERT_NE(whole, before);
        const auto of_part = [&](const std::vector<float>& all, const Shard& part) {
            return std::vector<float>(all.begin() + part.first * one.columns,
                                      all.begin() + (part.first + part.count) * one.columns);
        };
        for (const std::int64_t ranks : ranks_that_divide(one))
            for (const Shard& part : one.parts(ranks)) {
                const Tensor rows = floats({part.count, one.columns}, of_part(before, part)),
                             places = floats({kSequence, one.columns});
                device().embed_part_backward(tokens, dy, part, rows, places);
                EXPECT_EQ(values(rows), of_part(whole, part));
                EXPECT_EQ(values(places), values(d_positions));
            }
    }
}

TEST_P(DividedVocabulary, HasTheLossAndTheGradientsOfTheWholeSoftmax) {
    for (const Vocabulary& one : vocabularies_) {
        const std::int64_t words = one.words, stride = words + 4;  // rows have padding, and begin anywhere
        auto numbers = drawn(kTokens * words, 5);
        std::fill_n(numbers.begin(), words, 80.0f);  // all alike: the first of them is the prediction
        numbers[static_cast<std::size_t>(words + 3)] =
            120;  // far above the others, whose exponentials vanish
        // Equal ones in different parts: the first one is the prediction.
        numbers[static_cast<std::size_t>(2 * words + one.tokens[2])] = 50;
        numbers[static_cast<std::size_t>(3 * words - 1)] = 50;
        const Tensor labels = tokens_of(one).view(0, {kTokens, 1}), metrics = device().make(Type::f64, {2}),
                     gradient = flowing({kTokens, words});
        device().softmax_cross_entropy(flowing({kTokens, words}, numbers), words, labels, 0.5f, metrics,
                                       gradient);
        const auto expected = device().values_of<double>(metrics);
        EXPECT_GE(expected[1], 2) << "what is predicted among equals is not tested";
        const auto whole = values(gradient);
        const double rounding = type() == Type::bf16 ? 2 * kBfloat16Rounding : 0;

        for (const std::int64_t ranks : ranks_that_divide(one)) {
            const auto parts = one.parts(ranks);
            std::vector<Tensor> logits;
            const Tensor notes = floats({ranks, kTokens * kSoftmaxNumbers});
            for (const Shard& part : parts) {
                std::vector<float> rows(static_cast<std::size_t>(kTokens * stride), 1e30f);
                for (std::int64_t row = 0; row < kTokens; ++row)
                    std::copy_n(numbers.begin() + row * words + part.first, part.count,
                                rows.begin() + row * stride);
                const auto rank = static_cast<std::int64_t>(logits.size());
                logits.push_back(flowing({kTokens, stride}, rows));
                device().softmax_part(
                    logits.back(), part, labels,
                    notes.view(rank * kTokens * kSoftmaxNumbers, {kTokens, kSoftmaxNumbers}));
            }
            for (std::size_t rank = 0; rank < parts.size(); ++rank) {
                const Shard& part = parts[rank];
                const auto before = values(logits[rank]);
                // Where only the loss is wanted, and where the gradients take the logits' place.
                for (const bool wants_gradients : {false, true}) {
                    device().zero(metrics);
                    device().softmax_cross_entropy_of_parts(logits[rank], part, labels, notes, 0.5f, metrics,
                                                            wants_gradients ? logits[rank] : Tensor());
                    const auto got = device().values_of<double>(metrics);
                    EXPECT_NEAR(got[0], expected[0], 1e-5 * expected[0]);
                    EXPECT_EQ(got[1], expected[1]);
                }
                const auto gradients = values(logits[rank]);
                for (std::int64_t row = 0; row < kTokens; ++row) {
                    for (std::int64_t word = 0; word < part.count; ++word) {
                        const auto there = static_cast<double>(
                            whole[static_cast<std::size_t>(row * words + part.first + word)]);
                        ASSERT_NEAR(gradients[static_cast<std::size_t>(row * stride + word)], there,
                                    1e-6 + rounding * std::abs(there))
                            << ranks << " ranks, row " << row << ", word " << part.first + word;
                    }
                    // Also where a row's padding has as many numbers as the label is behind the part.
                    for (std::int64_t number = row * stride + part.count; number < (row + 1) * stride;
                         ++number)
                        ASSERT_EQ(gradients[static_cast<std::size_t>(number)],
                                  before[static_cast<std::size_t>(number)])
                            << ranks << " ranks, the padding of row " << row;
                }
            }
        }
    }
}

INSTANTIATE_ON_EACH_DEVICE_IN_EACH_PRECISION(DividedVocabulary);

}  // namespace
}  // namespace dp::trainer
