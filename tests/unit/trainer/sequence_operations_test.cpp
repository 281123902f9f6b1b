// SPDX-License-Identifier: Apache-2.0
//
// The operations on sequences, on every device: results against the same formulas in float64, gradients
// against slopes of those.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices.hpp"
#include "slopes.hpp"
#include "trainer/devices/cpu/exponential.hpp"

namespace dp::trainer {
namespace {

constexpr double kTolerance = 3e-6;

class SequenceOperationsTest : public OnEachDevice {
 protected:
    Tensor floats(Shape shape) { return device().make(Type::f32, std::move(shape)); }
    std::vector<float> values(const Tensor& tensor) { return device().values_of<float>(tensor); }
};

std::vector<double> gelu(const std::vector<double>& x) {
    std::vector<double> y;
    for (double value : x)
        y.push_back(0.5 * value *
                    (1 + std::tanh(std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value))));
    return y;
}

TEST_P(SequenceOperationsTest, GeluAndItsGradient) {
    const auto x = random_values(1001, 1, -6, 6), dy = random_values(1001, 2);
    const Tensor tx = upload(device(), {1001}, x), y = floats({1001}), tdy = upload(device(), {1001}, dy);
    device().gelu(tx, y);
    expect_close(values(y), gelu(widened(x)), kTolerance, "gelu");
    device().gelu_backward(tx, tdy, tdy);
    expect_slopes([&](const auto& at) { return weighted_sum(gelu(at), dy); }, x, values(tdy), "gelu");
}

TEST_P(SequenceOperationsTest, GeluOfLargeNumbersIsTheNumberOrNothing) {
    const Tensor x = upload(device(), {4}, {100, -100, 1e30f, -1e30f}), y = floats({4});
    device().gelu(x, y);
    const auto result = values(y);
    EXPECT_EQ(result[0], 100);
    EXPECT_EQ(result[2], 1e30f);
    EXPECT_NEAR(result[1], 0, 1e-30);
    EXPECT_NEAR(result[3] / 1e30f, 0, 1e-30);
}

TEST_P(SequenceOperationsTest, EmbeddingAddsATokensVectorAndItsPlaces) {
    constexpr std::int64_t kSequences = 3, kLength = 5, kVocabulary = 7, kColumns = 9;
    const std::vector<std::int32_t> tokens{6, 0, 3, 3, 1, 3, 3, 3, 0, 6, 2, 1, 0, 6, 3};
    const auto table = random_values(kVocabulary * kColumns, 3),
               places = random_values((kLength + 2) * kColumns, 4);
    const auto dy = random_values(kSequences * kLength * kColumns, 5);
    const Tensor indices = device().copy_of<std::int32_t>(Type::i32, {kSequences, kLength}, tokens);
    const Tensor y = floats({kSequences * kLength, kColumns});
    device().embed(indices, upload(device(), {kVocabulary, kColumns}, table),
                   upload(device(), {kLength + 2, kColumns}, places), y);
    std::vector<double> expected;
    // The gradients are added to what is there.
    const auto before_table = random_values(kVocabulary * kColumns, 6);
    const auto before_places = random_values((kLength + 2) * kColumns, 7);
    auto d_table = widened(before_table), d_places = widened(before_places);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
        for (std::size_t c = 0; c < kColumns; ++c) {
            const std::size_t in_table = static_cast<std::size_t>(tokens[row]) * kColumns + c;
            const std::size_t in_places = row % kLength * kColumns + c;
            expected.push_back(static_cast<double>(table[in_table]) + static_cast<double>(places[in_places]));
            d_table[in_table] += static_cast<double>(dy[row * kColumns + c]);
            d_places[in_places] += static_cast<double>(dy[row * kColumns + c]);
        }
    }
    expect_close(values(y), expected, kTolerance, "embedding");
    const Tensor to_table = upload(device(), {kVocabulary, kColumns}, before_table);
    const Tensor to_places = upload(device(), {kLength + 2, kColumns}, before_places);
    device().embed_backward(indices, upload(device(), {kSequences * kLength, kColumns}, dy), to_table,
                            to_places);
    expect_close(values(to_table), d_table, kTolerance, "the table's gradient");
    expect_close(values(to_places), d_places, kTolerance, "the places' gradient");
}

std::vector<double> layer_norm(const std::vector<double>& x, const std::vector<double>& w,
                               const std::vector<double>& b) {
    const std::size_t columns = w.size();
    std::vector<double> y;
    for (std::size_t first = 0; first < x.size(); first += columns) {
        double mean = 0, variance = 0;
        for (std::size_t c = 0; c < columns; ++c) mean += x[first + c] / static_cast<double>(columns);
        for (std::size_t c = 0; c < columns; ++c)
            variance += (x[first + c] - mean) * (x[first + c] - mean) / static_cast<double>(columns);
        for (std::size_t c = 0; c < columns; ++c)
            y.push_back((x[first + c] - mean) / std::sqrt(variance + 1e-5) * w[c] + b[c]);
    }
    return y;
}

TEST_P(SequenceOperationsTest, LayerNormAndItsGradients) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 2}, {3, 24}, {37, 513}}) {
        const auto x = random_values(rows * columns, 8, -3, 5), w = random_values(columns, 9),
                   b = random_values(columns, 10);
        const auto dy = random_values(rows * columns, 11), before = random_values(rows * columns, 12);
        const Tensor tx = upload(device(), {rows, columns}, x), tw = upload(device(), {columns}, w);
        const Tensor y = floats({rows, columns}), saved = floats({rows, 2});
        device().layer_norm(tx, tw, upload(device(), {columns}, b), y, saved);
        expect_close(values(y), layer_norm(widened(x), widened(w), widened(b)), kTolerance, "layer norm");

        const Tensor dx = upload(device(), {rows, columns}, before), dw = floats({columns}),
                     db = floats({columns});
        device().layer_norm_backward(tx, tw, saved, upload(device(), {rows, columns}, dy), dx, dw, db);
        auto added = values(dx);
        for (std::size_t i = 0; i < added.size(); ++i) added[i] -= before[i];
        const auto loss = [&](const auto& at, const auto& weights, const auto& biases) {
            return weighted_sum(layer_norm(at, weights, biases), dy);
        };
        expect_slopes([&](const auto& at) { return loss(at, widened(w), widened(b)); }, x, added, "x");
        expect_slopes([&](const auto& at) { return loss(widened(x), at, widened(b)); }, w, values(dw), "w");
        expect_slopes([&](const auto& at) { return loss(widened(x), widened(w), at); }, b, values(db), "b");
    }
}

// As device.hpp says, token by token.
std::vector<double> attention(const std::vector<double>& qkv, std::size_t sequence, std::size_t heads,
                              std::size_t columns) {
    const std::size_t size = columns / heads, rows = qkv.size() / 3 / columns;
    std::vector<double> y(rows * columns);
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row / sequence * sequence;
        for (std::size_t head = 0; head < heads; ++head) {
            const double* q = &qkv[row * 3 * columns + head * size];
            std::vector<double> weights;
            double total = 0;
            for (std::size_t other = first; other <= row; ++other) {
                const double* k = &qkv[other * 3 * columns + columns + head * size];
                double score = 0;
                for (std::size_t i = 0; i < size; ++i) score += q[i] * k[i];
                weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
                total += weights.back();
            }
            for (std::size_t other = first; other <= row; ++other) {
                const double* v = &qkv[other * 3 * columns + 2 * columns + head * size];
                for (std::size_t i = 0; i < size; ++i)
                    y[row * columns + head * size + i] += weights[other - first] / total * v[i];
            }
        }
    }
    return y;
}

TEST_P(SequenceOperationsTest, AttentionAndItsGradient) {
    struct Case {
        std::int64_t sequences, sequence, heads, size;
    };
    // Heads of the seeds' sizes, one of each width that the kernels know, and lengths on both sides of their
    // blocks.
    for (const auto& [sequences, sequence, heads, size] :
         std::vector<Case>{{1, 1, 1, 1}, {2, 5, 3, 24}, {1, 65, 2, 64}, {2, 33, 1, 80}, {1, 70, 1, 128}}) {
        const std::int64_t columns = heads * size, rows = sequences * sequence;
        const auto qkv = random_values(rows * 3 * columns, 13, -2, 2), dy = random_values(rows * columns, 14);
        const Attention shape{sequence, heads};
        const Tensor in = upload(device(), {rows, 3 * columns}, qkv), y = floats({rows, columns});
        const Tensor sums = floats({rows, heads}), d_in = floats({rows, 3 * columns});
        device().attention(shape, in, y, sums);
        const auto reference = [&, sequence = sequence, heads = heads](const auto& at) {
            return attention(at, static_cast<std::size_t>(sequence), static_cast<std::size_t>(heads),
                             static_cast<std::size_t>(columns));
        };
        expect_close(values(y), reference(widened(qkv)), kTolerance, "attention");
        device().attention_backward(shape, in, y, sums, upload(device(), {rows, columns}, dy), d_in);
        expect_slopes([&](const auto& at) { return weighted_sum(reference(at), dy); }, qkv, values(d_in),
                      "sequence of " + std::to_string(sequence) + ", heads of " + std::to_string(size));
    }
}

TEST_P(SequenceOperationsTest, AttentionSeesNothingOfWhatComesLater) {
    constexpr std::int64_t kRows = 70, kColumns = 8;
    auto qkv = random_values(kRows * 3 * kColumns, 15);
    const Attention shape{kRows, 2};
    const Tensor y = floats({kRows, kColumns}), sums = floats({kRows, 2});
    device().attention(shape, upload(device(), {kRows, 3 * kColumns}, qkv), y, sums);
    const auto before = values(y);
    std::fill(qkv.begin() + 69 * 3 * kColumns, qkv.end(), 1e4f);
    device().attention(shape, upload(device(), {kRows, 3 * kColumns}, qkv), y, sums);
    const auto after = values(y);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 69 * kColumns, after.begin()));
    EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST_P(SequenceOperationsTest, CrossEntropyOfManyClassesInPlace) {
    constexpr std::int64_t kRows = 5, kClasses = 1000;
    const auto logits = random_values(kRows * kClasses, 16, -8, 8);
    const std::vector<std::int32_t> labels{0, 999, 500, 3, 7};
    const Tensor in = upload(device(), {kRows, kClasses}, logits), metrics = device().make(Type::f64, {2});
    device().softmax_cross_entropy(in, device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, labels), 0.25f,
                                   metrics, in);
    const auto loss = [&](const std::vector<double>& at) {
        double sum = 0;
        for (std::size_t row = 0; row < kRows; ++row) {
            double total = 0;
            for (std::size_t c = 0; c < kClasses; ++c) total += std::exp(at[row * kClasses + c]);
            sum += std::log(total) - at[row * kClasses + static_cast<std::size_t>(labels[row])];
        }
        return sum;
    };
    EXPECT_NEAR(device().values_of<double>(metrics)[0], loss(widened(logits)), 1e-5 * loss(widened(logits)));
    expect_slopes([&](const auto& at) { return 0.25 * loss(at); }, logits, values(in), "logits");
}

INSTANTIATE_ON_EACH_DEVICE(SequenceOperationsTest);

TEST(ExponentialTest, IsTheLibrarysToTwoUnitsInTheLastPlace) {
    double worst = 0;
    for (float x = -87; x < 88; x += 0.00917f) {
        const double exact = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::abs(static_cast<double>(cpu::exponential(x)) - exact) / exact);
    }
    EXPECT_LT(worst, 2 * 0x1p-23);
    EXPECT_EQ(cpu::exponential(0), 1);
    EXPECT_LT(cpu::exponential(-1e30f), 2e-38f);
    EXPECT_GT(cpu::exponential(1e30f), 1e38f);
    EXPECT_TRUE(std::isnan(cpu::exponential(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace dp::trainer
