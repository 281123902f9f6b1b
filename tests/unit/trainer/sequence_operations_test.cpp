// SPDX-License-Identifier: Apache-2.0
//
// The operations on sequences, on every device: results against the same formulas in float64, gradients
// against slopes of those.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "attention_in_float64.hpp"
#include "devices.hpp"
#include "slopes.hpp"
#include "trainer/devices/attention_passes.hpp"
#include "trainer/devices/cpu/exponential.hpp"

namespace dp::trainer {
namespace {

constexpr double kTolerance = 3e-6;

class SequenceOperationsTest : public OnEachDeviceInEachPrecision {
 protected:
    // In bf16 a device may round the weights of the softmax, too: matrix units take nothing wider.
    void expect_attention(const Tensor& y, const std::vector<double>& reference) {
        expect_tensor(y, reference, type() == Type::bf16 ? kBfloat16Rounding : kTolerance, "attention");
    }
    // And what may be made in two operations.
    void expect_rounded_twice(const Tensor& y, const std::vector<double>& reference,
                              const std::string& what) {
        expect_tensor(y, reference, type() == Type::bf16 ? kBfloat16Rounding : kTolerance, what);
    }
};

std::vector<double> gelu(const std::vector<double>& x) {
    std::vector<double> y;
    for (double value : x)
        y.push_back(0.5 * value *
                    (1 + std::tanh(std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value))));
    return y;
}

TEST_P(SequenceOperationsTest, GeluAndItsGradient) {
    const auto x = numbers(1001, 1, -6, 6), dy = numbers(1001, 2);
    const Tensor tx = flowing({1001}, x), y = flowing({1001}), tdy = flowing({1001}, dy);
    device().gelu(tx, y);
    expect_tensor(y, gelu(widened(x)), kTolerance, "gelu");
    device().gelu_backward(tx, tdy, tdy);
    expect_slopes([&](const auto& at) { return weighted_sum(gelu(at), dy); }, x, values(tdy), "gelu",
                  slope_tolerance(type()));
}

TEST_P(SequenceOperationsTest, GeluOfLargeNumbersIsTheNumberOrNothing) {
    const auto large = representable({100, -100, 1e30f, -1e30f});
    const Tensor x = flowing({4}, large), y = flowing({4});
    device().gelu(x, y);
    const auto result = values(y);
    EXPECT_EQ(result[0], 100);
    EXPECT_EQ(result[2], large[2]);
    EXPECT_NEAR(result[1], 0, 1e-30);
    EXPECT_NEAR(result[3] / 1e30f, 0, 1e-30);
}

// x [rows, inputs] times w [outputs, inputs] transposed, and b.
std::vector<double> linear(const std::vector<float>& x, const std::vector<float>& w,
                           const std::vector<float>& b, std::size_t inputs) {
    const std::size_t outputs = w.size() / inputs;
    std::vector<double> y;
    for (std::size_t row = 0; row < x.size() / inputs; ++row)
        for (std::size_t output = 0; output < outputs; ++output) {
            y.push_back(b.empty() ? 0 : static_cast<double>(b[output]));
            for (std::size_t i = 0; i < inputs; ++i)
                y.back() +=
                    static_cast<double>(x[row * inputs + i]) * static_cast<double>(w[output * inputs + i]);
        }
    return y;
}

// [rows, inputs, outputs]: such as cuBLASLt takes with GELU, and others.
struct Linear {
    std::int64_t rows, inputs, outputs;
};
constexpr Linear kLinears[] = {{1, 1, 1}, {3, 7, 13}, {5, 16, 24}, {37, 40, 72}};

// Twice each, with other tensors of the same shapes: what a device keeps of the first must not count.
TEST_P(SequenceOperationsTest, ALinearLayerIsAddedToWhatThereIs) {
    for (const auto& [rows, inputs, outputs] : kLinears) {
        const auto x = numbers(rows * inputs, 20), w = numbers(outputs * inputs, 21);
        std::vector<Tensor> earlier;
        for (const std::uint64_t round : std::array<std::uint64_t, 3>{0, 1, 2}) {  // the last without a bias
            const auto b = numbers(outputs, 30 + round), added = numbers(rows * outputs, 40 + round, -4, 4);
            auto expected =
                linear(x, w, round < 2 ? b : std::vector<float>{}, static_cast<std::size_t>(inputs));
            for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(added[i]);
            const Tensor bias = flowing({outputs}, b), before = flowing({rows, outputs}, added),
                         y = flowing({rows, outputs}, numbers(rows * outputs, 50));
            device().linear_add(flowing({rows, inputs}, x), flowing({outputs, inputs}, w),
                                round < 2 ? bias : Tensor{}, before, y);
            expect_rounded_twice(y, expected, "sum");
            EXPECT_EQ(values(before), added);
            earlier.insert(earlier.end(), {bias, before, y});
        }
    }
}

TEST_P(SequenceOperationsTest, ALinearLayerWithGeluKeepsWhatGeluTakes) {
    for (const auto& [rows, inputs, outputs] : kLinears) {
        const auto x = numbers(rows * inputs, 24), w = numbers(outputs * inputs, 25, -2, 2);
        std::vector<Tensor> earlier;
        for (const std::uint64_t round : std::array<std::uint64_t, 2>{0, 1}) {
            const auto b = numbers(outputs, 60 + round);
            const auto expected = linear(x, w, b, static_cast<std::size_t>(inputs));
            const Tensor bias = flowing({outputs}, b), up = flowing({rows, outputs}),
                         y = flowing({rows, outputs});
            device().linear_gelu(flowing({rows, inputs}, x), flowing({outputs, inputs}, w), bias, up, y);
            expect_tensor(up, expected, kTolerance, "before GELU");
            expect_rounded_twice(y, gelu(expected), "after GELU");
            earlier.insert(earlier.end(), {bias, up, y});
        }
    }
}

TEST_P(SequenceOperationsTest, TheGradientOfGeluAndOfALinearLayerAfterIt) {
    for (const auto& [rows, outputs, inputs] : kLinears) {  // of the layer: GELU is of its inputs
        const auto up = numbers(rows * inputs, 27, -4, 4), w = numbers(outputs * inputs, 28),
                   dy = numbers(rows * outputs, 29);
        std::vector<float> transposed;
        for (std::int64_t i = 0; i < inputs; ++i)
            for (std::int64_t o = 0; o < outputs; ++o)
                transposed.push_back(w[static_cast<std::size_t>(o * inputs + i)]);
        auto expected = linear(dy, transposed, {}, static_cast<std::size_t>(outputs));
        for (std::size_t i = 0; i < expected.size(); ++i) {
            constexpr double kStep = 1e-5;
            const double at = static_cast<double>(up[i]);
            expected[i] *= (gelu({at + kStep})[0] - gelu({at - kStep})[0]) / (2 * kStep);
        }
        const Tensor d_up = flowing({rows, inputs});
        device().linear_gelu_backward_input(flowing({rows, outputs}, dy), flowing({outputs, inputs}, w),
                                            flowing({rows, inputs}, up), d_up);
        expect_rounded_twice(d_up, expected, "gradient");
    }
}

TEST_P(SequenceOperationsTest, EmbeddingAddsATokensVectorAndItsPlaces) {
    constexpr std::int64_t kSequences = 3, kLength = 5, kVocabulary = 7, kColumns = 41;
    const std::vector<std::int32_t> tokens{6, 0, 3, 3, 1, 3, 3, 3, 0, 6, 2, 1, 0, 6, 3};
    const auto table = numbers(kVocabulary * kColumns, 3), places = numbers((kLength + 2) * kColumns, 4);
    const auto dy = numbers(kSequences * kLength * kColumns, 5);
    const Tensor indices = device().copy_of<std::int32_t>(Type::i32, {kSequences, kLength}, tokens);
    const Tensor y = flowing({kSequences * kLength, kColumns});
    device().embed(indices, flowing({kVocabulary, kColumns}, table), flowing({kLength + 2, kColumns}, places),
                   y);
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
    expect_tensor(y, expected, kTolerance, "embedding");
    const Tensor to_table = floats({kVocabulary, kColumns}, before_table);
    const Tensor to_places = floats({kLength + 2, kColumns}, before_places);
    device().embed_backward(indices, flowing({kSequences * kLength, kColumns}, dy), to_table, to_places);
    expect_tensor(to_table, d_table, kTolerance, "the table's gradient");
    expect_tensor(to_places, d_places, kTolerance, "the places' gradient");
}

// [sequences, length, columns]: more columns than a block adds up at once, more rows than it looks at, and tokens of so many rows that
// several blocks add them up: all over the batch, or one behind the other, in exactly as many.
TEST_P(SequenceOperationsTest, EmbeddingsGradientOfManyRowsOfFewTokens) {
    constexpr std::int64_t kVocabulary = 5;
    for (const auto& [sequences, length, columns, runs] :
         {std::array<std::int64_t, 4>{2, 300, 1030, 1}, {3, 1500, 136, 1}, {1, 1100, 10, 512}}) {
        Random random(8, 0);
        std::vector<std::int32_t> tokens;
        for (int i = 0; i < sequences * length; ++i)  // 4 only in the first row
            tokens.push_back(i == 0                 ? 4
                             : i % runs != 1 % runs ? tokens.back()
                                                    : static_cast<std::int32_t>(random.below(4)));
        const auto dy = numbers(sequences * length * columns, 9);
        // The gradients are added to what is there.
        const auto before = random_values(kVocabulary * columns, 6);
        auto expected = widened(before);
        const auto row_length = static_cast<std::size_t>(columns);
        for (std::size_t i = 0; i < dy.size(); ++i)
            expected[static_cast<std::size_t>(tokens[i / row_length]) * row_length + i % row_length] +=
                static_cast<double>(dy[i]);
        const Tensor d_table = floats({kVocabulary, columns}, before), d_places = floats({length, columns}),
                     indices = device().copy_of<std::int32_t>(Type::i32, {sequences, length}, tokens),
                     d_vectors = flowing({sequences * length, columns}, dy);
        device().embed_backward(indices, d_vectors, d_table, d_places);
        expect_tensor(d_table, expected, kTolerance, "the table's gradient");
        const auto whole = values(d_table);
        const Tensor d_part =
            floats({2, columns}, {before.begin() + 2 * columns, before.begin() + 4 * columns});
        device().embed_part_backward(indices, d_vectors, {2, 2}, d_part, d_places);
        EXPECT_EQ(values(d_part), std::vector(whole.begin() + 2 * columns, whole.begin() + 4 * columns));
    }
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

// Rows of few numbers and of more than 512 packs, and parts of 16 rows, the last of which is whole or not.
TEST_P(SequenceOperationsTest, LayerNormAndItsGradients) {
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 2}, {3, 24}, {37, 513}, {200, 16}, {3, 1030}, {16, 264}, {33, 8}}) {
        const auto x = numbers(rows * columns, 8, -3, 5), dy = numbers(rows * columns, 11),
                   before = numbers(rows * columns, 12);
        const auto w = random_values(columns, 9), b = random_values(columns, 10);
        const Tensor tx = flowing({rows, columns}, x), tw = floats({columns}, w);
        const Tensor y = flowing({rows, columns}), saved = floats({rows, 2});
        device().layer_norm(tx, tw, floats({columns}, b), y, saved);
        expect_tensor(y, layer_norm(widened(x), widened(w), widened(b)), kTolerance, "layer norm");

        // What the latter two hold before must not count.
        const Tensor dx = flowing({rows, columns}, before), dw = floats({columns}, w),
                     db = floats({columns}, b);
        device().layer_norm_backward(tx, tw, saved, flowing({rows, columns}, dy), dx, dw, db);
        // It adds to what was there.
        const auto loss = [&](const auto& at, const auto& weights, const auto& biases) {
            return weighted_sum(layer_norm(at, weights, biases), dy) + weighted_sum(at, before);
        };
        expect_slopes([&](const auto& at) { return loss(at, widened(w), widened(b)); }, x, values(dx), "x",
                      slope_tolerance(type()));
        expect_slopes([&](const auto& at) { return loss(widened(x), at, widened(b)); }, w, values(dw), "w");
        expect_slopes([&](const auto& at) { return loss(widened(x), widened(w), at); }, b, values(db), "b");
    }
}

// Rows of whole packs of 16 bytes in tensors that begin elsewhere, each of them alone.
TEST_P(SequenceOperationsTest, TensorsMayBeginAnywhere) {
    constexpr std::int64_t kRows = 6, kColumns = 16, kVocabulary = 4;
    const std::vector<std::int32_t> tokens{3, 0, 1, 1, 2, 3};
    const Tensor indices = device().copy_of<std::int32_t>(Type::i32, {2, 3}, tokens);
    // Which tensor begins one number further on; 0: none.
    const auto results = [&](int which) {
        int number = 0;
        const auto place = [&](const Shape& shape, std::uint64_t seed, Type of) {
            const std::int64_t skip = ++number == which ? 1 : 0, count = elements_of(shape);
            const auto all = random_values(skip + count, 0);
            const Tensor room = of == Type::f32 ? floats({skip + count}, all) : flowing({skip + count}, all);
            const Tensor tensor = room.view(skip, shape);
            device().convert(of == Type::f32 ? floats(shape, random_values(count, seed))
                                             : flowing(shape, numbers(count, seed)),
                             tensor);
            return tensor;
        };
        const Tensor table = place({kVocabulary, kColumns}, 1, type()),
                     places = place({3, kColumns}, 2, type()), y = place({kRows, kColumns}, 3, type()),
                     x = place({kRows, kColumns}, 4, type()), dy = place({kRows, kColumns}, 5, type()),
                     dx = place({kRows, kColumns}, 6, type()), normed = place({kRows, kColumns}, 7, type()),
                     w = place({kColumns}, 8, Type::f32), b = place({kColumns}, 9, Type::f32);
        const Tensor saved = floats({kRows, 2}), d_table = floats({kVocabulary, kColumns}),
                     d_places = floats({3, kColumns}), dw = floats({kColumns}), db = floats({kColumns}),
                     d_weights = floats({kColumns, kColumns}), d_bias = floats({kColumns});
        device().zero(x.first_rows(1));  // all of it alike
        device().embed(indices, table, places, y);
        device().embed_backward(indices, dy, d_table, d_places);
        device().layer_norm(x, w, b, normed, saved);
        device().layer_norm_backward(x, w, saved, dy, dx, dw, db);
        device().linear_backward_parameters(dy, x, d_weights, d_bias);
        std::vector<float> all;
        for (const Tensor& one : {y, d_table, d_places, normed, dx, dw, db, d_bias}) {
            const auto found = values(one);
            all.insert(all.end(), found.begin(), found.end());
        }
        return all;
    };
    const auto expected = results(0);
    for (int which = 1; which <= 9; ++which) {
        const auto found = results(which);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_NEAR(found[i], expected[i],
                        (type() == Type::bf16 ? 0.02 : 1e-5) * (1 + std::abs(expected[i])))
                << which << ", " << i;
    }
}

// The first key that each query of rows sees, where documents begin at these places of each sequence.
std::vector<std::int32_t> starts_of(std::int64_t sequences, std::int64_t sequence,
                                    const std::set<std::int32_t>& documents) {
    std::vector<std::int32_t> starts;
    for (std::int64_t row = 0; row < sequences * sequence; ++row) {
        const auto place = static_cast<std::int32_t>(row % sequence);
        starts.push_back(documents.contains(place) ? place : place == 0 ? 0 : starts.back());
    }
    return starts;
}

TEST_P(SequenceOperationsTest, AttentionAndItsGradient) {
    struct Case {
        std::int64_t sequences, sequence, heads, size;
        Dropout dropout = {};
        std::set<std::int32_t> documents = {};
    };
    // Heads of the seeds' sizes, one of each width that the kernels know and one that is no multiple of 8,
    // and lengths on both sides of their blocks. Then the same with dropout, and with documents that begin within sequences: tiles of
    // keys that some queries see nothing of, that none does, and documents of one token.
    for (const auto& [sequences, sequence, heads, size, dropout, documents] :
         std::vector<Case>{{1, 1, 1, 1},
                           {2, 5, 3, 24},
                           {1, 65, 2, 64},
                           {2, 33, 1, 80},
                           {1, 70, 1, 128},
                           {1, 40, 2, 20},
                           {1, 150, 1, 24},
                           {2, 5, 3, 24, {0.5f, 7, 10}},
                           {1, 70, 1, 24, {0.1f, 8, 0}},
                           {1, 65, 1, 64, {0.5f, 9, 130}},
                           {1, 40, 1, 80, {0.25f, 11, 40}},
                           {1, 33, 1, 128, {0.9f, 10, 0}},
                           {1, 150, 1, 24, {}, {0, 3, 64, 65, 140}},
                           {2, 70, 2, 64, {}, {5, 40}},
                           {1, 140, 1, 80, {}, {139}},
                           {1, 70, 1, 128, {0.1f, 8, 0}, {33}}}) {
        const std::int64_t columns = heads * size, rows = sequences * sequence;
        const auto qkv = numbers(rows * 3 * columns, 13, -2, 2), dy = numbers(rows * columns, 14);
        Attention shape{sequence, heads, dropout};
        const Tensor in = flowing({rows, 3 * columns}, qkv), y = flowing({rows, columns});
        const Tensor sums = floats({rows, heads}), d_in = flowing({rows, 3 * columns});
        const auto starts = starts_of(sequences, sequence, documents);
        const Tensor on_device = device().copy_of<std::int32_t>(Type::i32, {rows}, starts);
        if (!documents.empty()) shape.starts = on_device.data<std::int32_t>();
        device().attention(shape, in, y, sums);
        const auto reference = [&](const auto& at) {
            return attention(shape, at, static_cast<std::size_t>(columns), starts);
        };
        expect_attention(y, reference(widened(qkv)));
        device().attention_backward(shape, in, y, sums, flowing({rows, columns}, dy), d_in);
        expect_slopes([&](const auto& at) { return weighted_sum(reference(at), dy); }, qkv, values(d_in),
                      "sequence of " + std::to_string(sequence) + ", heads of " + std::to_string(size) +
                          ", dropout " + std::to_string(dropout.rate),
                      slope_tolerance(type()));
    }
}

// In bf16 a GPU makes the gradient in one pass over the scores where there are heads for all its SMs, as on the emulated one.
TEST_P(SequenceOperationsTest, AttentionsGradientOfManyHeads) {
    struct Case {
        std::int64_t sequences, sequence, heads, size;
        Dropout dropout = {};
        std::set<std::int32_t> documents = {};
    };
    std::vector<Case> cases{{1, 70, 4, 64},
                            {1, 193, 6, 8},
                            {2, 100, 2, 20, {0.25f, 11, 100}},
                            {1, 150, 4, 64, {0.5f, 9, 150}, {129}},
                            {1, 257, 4, 24, {}, {3, 64, 65, 130, 250}}};
    if (type() == Type::f32) cases.resize(1);  // it has no other way
    for (const auto& [sequences, sequence, heads, size, dropout, documents] : cases) {
        const std::int64_t columns = heads * size, rows = sequences * sequence;
        const auto qkv = numbers(rows * 3 * columns, 13, -2, 2), dy = numbers(rows * columns, 14);
        Attention shape{sequence, heads, dropout};
        const Tensor in = flowing({rows, 3 * columns}, qkv), y = flowing({rows, columns}),
                     d_y = flowing({rows, columns}, dy), sums = floats({rows, heads});
        const auto starts = starts_of(sequences, sequence, documents);
        const Tensor on_device = device().copy_of<std::int32_t>(Type::i32, {rows}, starts);
        if (!documents.empty()) shape.starts = on_device.data<std::int32_t>();
        device().attention(shape, in, y, sums);
        const auto result = [&] {
            const Tensor d_in = flowing({rows, 3 * columns});
            device().attention_backward(shape, in, y, sums, d_y, d_in);
            return values(d_in);
        };
        const auto slopes = result();
        const auto expected =
            attention_slopes(shape, widened(qkv), widened(dy), static_cast<std::size_t>(columns), starts);
        const double largest =
            std::abs(*std::ranges::max_element(expected, {}, [](double slope) { return std::abs(slope); }));
        for (std::size_t i = 0; i < slopes.size(); ++i)
            ASSERT_NEAR(slopes[i], expected[i], slope_tolerance(type()) * largest)
                << "sequence of " << sequence << ", heads of " << size << ", part "
                << i / static_cast<std::size_t>(columns) % 3 << " of token "
                << i / static_cast<std::size_t>(3 * columns) << ", number "
                << i % static_cast<std::size_t>(columns);
        EXPECT_EQ(result(), slopes) << "the same bits";
    }
}

// As many heads as tensor parallelism leaves a GPU, of sequences that end within a group of keys, a tile or a chunk of queries: on the
// emulated GPU of two SMs, all heads of a batch are made in one pass, and each alone in two.
TEST_P(SequenceOperationsTest, OnePassMakesTheGradientThatTwoMake) {
    if (type() == Type::f32) return;  // it has no other way
    struct Case {
        std::int64_t heads, sequence, size;
    };
    for (const auto& [heads, sequence, size] :
         {Case{1, 65, 64}, {3, 127, 24}, {6, 129, 8}, {2, 300, 40}, {1, 1024, 8}}) {
        constexpr std::int64_t kGpuOfSms = 2, kShared = 227 << 10;
        EXPECT_FALSE(takes_one_pass({1, sequence, size, kGpuOfSms, kShared}));
        std::int64_t copies = 1;
        while (!takes_one_pass({heads * copies, sequence, size, kGpuOfSms, kShared})) ++copies;
        const std::int64_t columns = heads * size;
        const auto qkv = numbers(sequence * 3 * columns, 13, -2, 2), dy = numbers(sequence * columns, 14);
        const auto gradient = [&](std::int64_t of_heads, std::int64_t of_sequences,
                                  const std::vector<float>& in, const std::vector<float>& slopes) {
            const std::int64_t rows = of_sequences * sequence, width = of_heads * size;
            const Attention shape{sequence, of_heads};
            const auto repeated = [&](const std::vector<float>& all) {
                std::vector<float> whole;
                for (std::int64_t i = 0; i < of_sequences; ++i)
                    whole.insert(whole.end(), all.begin(), all.end());
                return whole;
            };
            const Tensor x = flowing({rows, 3 * width}, repeated(in)), y = flowing({rows, width}),
                         sums = floats({rows, of_heads}), d_x = flowing({rows, 3 * width});
            device().attention(shape, x, y, sums);
            device().attention_backward(shape, x, y, sums, flowing({rows, width}, repeated(slopes)), d_x);
            return values(d_x);
        };
        // Of [rows, parts, heads, size].
        const auto of_head = [&](const std::vector<float>& all, std::int64_t head) {
            std::vector<float> own;
            for (std::int64_t first = head * size; first < std::ssize(all); first += columns)
                own.insert(own.end(), all.begin() + first, all.begin() + first + size);
            return own;
        };
        const auto in_one_pass = gradient(heads, copies, qkv, dy);
        for (std::int64_t head = 0; head < heads; ++head) {
            const auto in_two = gradient(1, 1, of_head(qkv, head), of_head(dy, head));
            for (std::int64_t copy = 0; copy < copies; ++copy) {
                const auto begin = in_one_pass.begin() + copy * sequence * 3 * columns;
                const auto in_one = of_head({begin, begin + sequence * 3 * columns}, head);
                ASSERT_EQ(in_one.size(), in_two.size());
                for (std::size_t i = 0; i < in_one.size(); ++i)
                    ASSERT_NEAR(in_one[i], in_two[i], kBfloat16Rounding * (1 + std::abs(in_two[i])))
                        << "head " << head << " of " << heads << " of " << size << ", sequence of "
                        << sequence << ", number " << i;
            }
        }
    }
}

// One after another of a block's heads, or another block's.
TEST_P(SequenceOperationsTest, AttentionsGradientIsTheSameWhereverAHeadIs) {
    constexpr std::int64_t kSequence = 70, kHeads = 4, kColumns = kHeads * 16, kRows = 2 * kSequence;
    const auto qkv = numbers(kRows * 3 * kColumns, 16), dy = numbers(kRows * kColumns, 17);
    // Of the sequences from `first` on.
    const auto result = [&](std::int64_t first) {
        const std::int64_t rows = kRows - first * kSequence;
        const auto from = [&](const auto& all, std::int64_t columns) {
            return flowing({rows, columns}, {all.begin() + first * kSequence * columns, all.end()});
        };
        const Tensor in = from(qkv, 3 * kColumns), y = flowing({rows, kColumns}),
                     sums = floats({rows, kHeads}), d_in = flowing({rows, 3 * kColumns});
        device().attention({kSequence, kHeads}, in, y, sums);
        device().attention_backward({kSequence, kHeads}, in, y, sums, from(dy, kColumns), d_in);
        return values(d_in);
    };
    const auto whole = result(0), second = result(1);
    EXPECT_TRUE(std::equal(second.rbegin(), second.rend(), whole.rbegin()));
}

// A row's largest score is its own: with that of another row, its weights may all become zero.
TEST_P(SequenceOperationsTest, AttentionOfQueriesOfVeryDifferentSizes) {
    constexpr std::int64_t kRows = 70, kColumns = 24;
    auto qkv = numbers(kRows * 3 * kColumns, 18, -2, 2);
    for (std::size_t row = 0; row < kRows; ++row)
        for (std::size_t i = 0; i < kColumns; ++i)
            qkv[row * 3 * kColumns + i] *= row % 16 < 8 ? 64.0f : 0.0625f;
    const Attention shape{kRows, 1};
    const Tensor y = flowing({kRows, kColumns}), sums = floats({kRows, 1});
    device().attention(shape, flowing({kRows, 3 * kColumns}, qkv), y, sums);
    const auto expected = attention(shape, widened(qkv), kColumns, starts_of(1, kRows, {}));
    if (type() == Type::bf16) return expect_attention(y, expected);
    expect_tensor(y, expected, 5e-5, "y");  // scores of some hundreds are rounded more
}

TEST_P(SequenceOperationsTest, AttentionOfTensorsThatBeginAnywhere) {
    constexpr std::int64_t kRows = 40, kColumns = 48;
    const auto qkv = numbers(kRows * 3 * kColumns, 13, -2, 2), dy = numbers(kRows * kColumns, 14);
    const Attention shape{kRows / 2, 2};
    // Which tensor begins one number further on; 0: none.
    const auto results = [&](int which) {
        int number = 0;
        const auto place = [&](std::int64_t columns, std::vector<float> all) {
            const std::int64_t skip = ++number == which ? 1 : 0;
            all.insert(all.begin(), static_cast<std::size_t>(skip), 7.0f);
            return flowing({skip + kRows * columns}, all).view(skip, {kRows, columns});
        };
        const auto empty = [&](std::int64_t columns) {
            return std::vector<float>(static_cast<std::size_t>(kRows * columns));
        };
        const Tensor in = place(3 * kColumns, qkv), y = place(kColumns, empty(kColumns)),
                     d_y = place(kColumns, dy), d_in = place(3 * kColumns, empty(3 * kColumns)),
                     sums = floats({kRows, 2});
        device().attention(shape, in, y, sums);
        device().attention_backward(shape, in, y, sums, d_y, d_in);
        return std::pair(values(y), values(d_in));
    };
    const auto expected = results(0);
    for (int which = 1; which <= 4; ++which) {
        const auto [y, d_in] = results(which);
        expect_close(y, widened(expected.first), 1e-5, "y " + std::to_string(which));
        expect_close(d_in, widened(expected.second), 1e-5, "d_in " + std::to_string(which));
    }
}

TEST_P(SequenceOperationsTest, FindsWhereDocumentsBegin) {
    constexpr std::int32_t kEnd = 9;
    constexpr std::int64_t kSequences = 19;
    const std::set<std::int32_t> documents{0, 31, 32, 33, 69};
    for (const std::int64_t sequence : {1, 31, 33, 70}) {
        std::vector<std::int32_t> tokens;
        for (std::int64_t row = 0; row < kSequences * sequence; ++row) {
            const auto place = static_cast<std::int32_t>(row % sequence);
            // The second sequence has none.
            tokens.push_back(documents.contains(place) && row / sequence != 1 ? kEnd : place % 8);
        }
        const Tensor starts = device().make(Type::i32, {kSequences * sequence});
        device().document_starts(device().copy_of<std::int32_t>(Type::i32, {kSequences, sequence}, tokens),
                                 kEnd, starts);
        auto expected = starts_of(kSequences, sequence, documents);
        std::fill_n(expected.begin() + sequence, sequence, 0);
        EXPECT_EQ(device().values_of<std::int32_t>(starts), expected);
    }
}

TEST_P(SequenceOperationsTest, AttentionSeesNothingOfWhatComesLater) {
    constexpr std::int64_t kRows = 70, kColumns = 8;
    auto qkv = numbers(kRows * 3 * kColumns, 15);
    const Attention shape{kRows, 2};
    const Tensor y = flowing({kRows, kColumns}), sums = floats({kRows, 2});
    device().attention(shape, flowing({kRows, 3 * kColumns}, qkv), y, sums);
    const auto before = values(y);
    std::fill(qkv.begin() + 69 * 3 * kColumns, qkv.end(), 1e4f);
    device().attention(shape, flowing({kRows, 3 * kColumns}, qkv), y, sums);
    const auto after = values(y);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 69 * kColumns, after.begin()));
    EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST_P(SequenceOperationsTest, AttentionDropsTheSameWeightsWhereverTheSequencesAre) {
    constexpr std::int64_t kSequence = 20, kRows = 3 * kSequence, kColumns = 16;
    const auto qkv = numbers(kRows * 3 * kColumns, 16), dy = numbers(kRows * kColumns, 17);
    // y and the gradient of qkv, of the sequences from `first` on.
    const auto result = [&](std::int64_t first, Dropout dropout) {
        const std::int64_t rows = kRows - first * kSequence;
        const Attention shape{kSequence, 2, dropout};
        const auto from = [&](const auto& all, std::int64_t columns) {
            return flowing({rows, columns}, {all.begin() + first * kSequence * columns, all.end()});
        };
        const Tensor in = from(qkv, 3 * kColumns), y = flowing({rows, kColumns}), sums = floats({rows, 2}),
                     d_in = flowing({rows, 3 * kColumns});
        device().attention(shape, in, y, sums);
        device().attention_backward(shape, in, y, sums, from(dy, kColumns), d_in);
        return std::pair(values(y), values(d_in));
    };
    const auto whole = result(0, {0.3f, 5, 0});
    const auto [y, gradient] = result(2, {0.3f, 5, 2 * kSequence});
    EXPECT_TRUE(std::equal(y.rbegin(), y.rend(), whole.first.rbegin())) << "as another rank has it";
    EXPECT_TRUE(std::equal(gradient.rbegin(), gradient.rend(), whole.second.rbegin()));
    EXPECT_NE(result(0, {0.3f, 6, 0}), whole) << "another key drops others";
    EXPECT_NE(result(0, {0.3f, 5, kSequence}), whole) << "and so do other sequences";
}

// CUDA takes 65535 blocks in all dimensions of a grid but the first. Of one token, attention is its value.
TEST_P(SequenceOperationsTest, AttentionOfVeryManyHeads) {
    constexpr std::int64_t kSequences = 65536;
    const auto qkv = numbers(kSequences * 3, 16);
    const Tensor in = flowing({kSequences, 3}, qkv), y = flowing({kSequences, 1}),
                 sums = floats({kSequences, 1}), d_in = flowing({kSequences, 3});
    device().attention({1, 1}, in, y, sums);
    device().attention_backward({1, 1}, in, y, sums, y, d_in);
    const auto found = values(y), slopes = values(d_in);
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], qkv[3 * i + 2], 1e-5f) << i;
        ASSERT_NEAR(slopes[3 * i + 2], found[i], 1e-5f) << i;
    }
}

TEST_P(SequenceOperationsTest, CrossEntropyOfManyClassesInPlace) {
    constexpr std::int64_t kRows = 5, kClasses = 2309;  // more than a block takes at once, 16 bytes a thread
    const auto logits = numbers(kRows * kClasses, 16, -8, 8);
    const std::vector<std::int32_t> labels{0, 999, 500, 3, 7};
    const Tensor in = flowing({kRows, kClasses}, logits), metrics = device().make(Type::f64, {2});
    const Tensor targets = device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, labels);
    const Tensor elsewhere = flowing({1 + kRows * kClasses}).view(1, {kRows, kClasses});
    device().softmax_cross_entropy(in, kClasses, targets, 0.25f, device().make(Type::f64, {2}), elsewhere);
    device().softmax_cross_entropy(in, kClasses, targets, 0.25f, metrics, in);
    EXPECT_EQ(values(elsewhere), values(in));
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
    expect_slopes([&](const auto& at) { return 0.25 * loss(at); }, logits, values(in), "logits",
                  slope_tolerance(type()));
}

// Rows that a GPU's block keeps in its shared memory, or only in bf16, or on some GPUs only; they begin anywhere, or all at a multiple of
// 16 bytes.
TEST_P(SequenceOperationsTest, CrossEntropyOfLongRows) {
    constexpr std::int64_t kRows = 4;
    constexpr float kScale = 4096;
    for (const std::int64_t classes : {13001, type() == Type::bf16 ? 24500 : 12200, 60000}) {
        auto logits = numbers(kRows * classes, 18, -8, 7);
        const std::vector<std::int32_t> labels{0, static_cast<std::int32_t>(classes - 1), 6001, 7};
        const auto at = [&](std::size_t row, std::int64_t c) -> float& {
            return logits[row * static_cast<std::size_t>(classes) + static_cast<std::size_t>(c)];
        };
        at(0, 0) = at(0, 9000) = at(1, classes - 1) = at(2, 6001) = at(2, 6000) =
            8;  // there, another is in front
        const Tensor in = flowing({kRows, classes}, logits), metrics = device().make(Type::f64, {2});
        const Tensor targets = device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, labels);
        const Tensor elsewhere = flowing({1 + kRows * classes}).view(1, {kRows, classes});
        device().softmax_cross_entropy(in, classes, targets, kScale, device().make(Type::f64, {2}),
                                       elsewhere);
        device().softmax_cross_entropy(in, classes, targets, 1, device().make(Type::f64, {2}), {});
        device().softmax_cross_entropy(in, classes, targets, kScale, metrics, in);
        EXPECT_EQ(values(elsewhere), values(in));
        double loss = 0;
        std::vector<double> gradient;
        for (std::size_t row = 0; row < kRows; ++row) {
            double total = 0;
            for (std::int64_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(at(row, c)));
            loss += std::log(total) - static_cast<double>(at(row, labels[row]));
            for (std::int64_t c = 0; c < classes; ++c)
                gradient.push_back(
                    static_cast<double>(kScale) *
                    (std::exp(static_cast<double>(at(row, c))) / total - (c == labels[row] ? 1 : 0)));
        }
        EXPECT_NEAR(device().values_of<double>(metrics)[0], loss, 1e-5 * loss);
        EXPECT_EQ(device().values_of<double>(metrics)[1], 2);
        expect_tensor(in, gradient, kTolerance, "gradient");
        device().convert(flowing({kRows, classes}, logits), elsewhere);
        device().softmax_cross_entropy(elsewhere, classes, targets, kScale, device().make(Type::f64, {2}),
                                       elsewhere);
        expect_tensor(elsewhere, gradient, kTolerance, "gradient of rows that begin one number further on");
    }
}

TEST_P(SequenceOperationsTest, CrossEntropyOfClassesThatAreRuledOut) {
    constexpr float kRuledOut = -std::numeric_limits<float>::infinity();
    for (const std::int64_t classes :
         {8, 2000, 13000}) {  // a row a thread, a block, and a block that keeps it
        std::vector<float> logits(static_cast<std::size_t>(classes), kRuledOut);
        logits[static_cast<std::size_t>(classes) - 1] = 3;
        logits[static_cast<std::size_t>(classes) - 2] = 3;
        const Tensor in = flowing({1, classes}, logits), metrics = device().make(Type::f64, {2});
        const std::vector<std::int32_t> labels{static_cast<std::int32_t>(classes - 1)};
        device().softmax_cross_entropy(in, classes, device().copy_of<std::int32_t>(Type::i32, {1, 1}, labels),
                                       1, metrics, in);
        EXPECT_NEAR(device().values_of<double>(metrics)[0], std::log(2.0), 1e-6) << classes;
        std::vector<double> gradient(static_cast<std::size_t>(classes), 0);
        gradient[static_cast<std::size_t>(classes) - 1] = -0.5;
        gradient[static_cast<std::size_t>(classes) - 2] = 0.5;
        expect_tensor(in, gradient, kTolerance, "gradient of " + std::to_string(classes) + " classes");
    }
}

TEST_P(SequenceOperationsTest, TheFirstOfTheLargestOfManyClassesIsTheAnswer) {
    constexpr std::int64_t kRows = 6, kClasses = 700;
    std::vector<float> logits(kRows * kClasses, -2.0f);
    const auto set = [&](std::size_t row, std::size_t c, float to) { logits[row * kClasses + c] = to; };
    set(0, 300, 1);  // the largest
    set(1, 300, 1);
    set(1, 10, 1);  // as large, in front of it
    set(2, 300, 1);
    set(2, 699, 1);  // as large, behind it
    set(3, 300, 1);
    set(3, 699, 2);  // larger
    set(4, 300, 1);
    set(4, 0, 2);
    const std::vector<std::int32_t> labels{300, 300, 300, 300, 300, 0};  // and the first of equals
    const Tensor metrics = device().make(Type::f64, {2});
    device().softmax_cross_entropy(flowing({kRows, kClasses}, logits), kClasses,
                                   device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, labels), 1, metrics,
                                   {});
    EXPECT_EQ(device().values_of<double>(metrics)[1], 3);
}

INSTANTIATE_ON_EACH_DEVICE_IN_EACH_PRECISION(SequenceOperationsTest);

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
