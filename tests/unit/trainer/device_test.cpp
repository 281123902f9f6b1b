// SPDX-License-Identifier: Apache-2.0
//
// Every operation of every device against the same formula in float64, written out below as
// plainly as possible.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices.hpp"

namespace dp::trainer {
namespace {

constexpr double kTolerance = 2e-6;  // of fp32 sums over a few hundred products

// [rows, inputs, outputs], with sizes of 1 and sizes that no vector width divides; rows whose sums are cut
// into parts, and GPT-2's vocabulary, which makes large matrices with odd rows.
struct Size {
    std::int64_t rows, inputs, outputs;
};
constexpr Size kSizes[] = {{1, 1, 1},      {1, 7, 3},    {5, 1, 9},    {20, 1, 1000}, {3, 1000, 1},
                           {64, 784, 256}, {33, 65, 17}, {300, 5, 40}, {5000, 2, 3},  {21, 3, 50257}};

class DeviceTest : public OnEachDevice {};
class OperationsTest : public OnEachDeviceInEachPrecision {};

TEST_P(DeviceTest, GivesBackWhatWasUploadedAndZeroesWhatIsNew) {
    const auto values = random_values(1000, 1);
    EXPECT_EQ(device().values_of<float>(upload(device(), {10, 100}, values)), values);
    const Tensor fresh = device().make(Type::f32, {300});
    EXPECT_EQ(device().values_of<float>(fresh), std::vector<float>(300, 0.0f));
    const Tensor tensor = upload(device(), {1000}, values);
    device().zero(tensor.view(10, {20}));
    auto expected = values;
    std::fill_n(expected.begin() + 10, 20, 0.0f);
    EXPECT_EQ(device().values_of<float>(tensor), expected);
}

TEST_P(OperationsTest, GathersRowsOfBytesFloatsIntegersAndTokens) {
    constexpr std::int64_t kRows = 50, kColumns = 107;
    const std::vector<std::int32_t> picked{49, 0, 7, 7, 31};
    const Tensor indices = device().copy_of<std::int32_t>(Type::i32, {5}, picked);
    std::vector<std::uint8_t> bytes;
    std::vector<std::int32_t> integers;
    for (int i = 0; i < kRows * kColumns; ++i) {
        bytes.push_back(static_cast<std::uint8_t>(i * 37));
        integers.push_back(i * 300007);
    }
    const auto amounts = random_values(kRows * kColumns, 2);
    std::vector<double> from_bytes, from_floats;
    std::vector<std::int32_t> from_integers;
    for (auto row : picked) {
        for (std::int64_t c = 0; c < kColumns; ++c) {
            const auto at = static_cast<std::size_t>(row * kColumns + c);
            from_bytes.push_back(bytes[at] * 0.5 - 3);
            from_floats.push_back(amounts[at] * 0.5 - 3);
            from_integers.push_back(integers[at]);
        }
    }
    const Tensor out = flowing({5, kColumns});
    device().gather(device().copy_of<std::uint8_t>(Type::u8, {kRows, kColumns}, bytes), indices, {0.5f, -3},
                    out);
    expect_tensor(out, from_bytes, kTolerance, "bytes");
    device().gather(floats({kRows, kColumns}, amounts), indices, {0.5f, -3}, out);
    expect_tensor(out, from_floats, kTolerance, "floats");
    std::vector<std::uint16_t> ids;
    for (int i = 0; i < kRows * kColumns; ++i) ids.push_back(static_cast<std::uint16_t>(65535 - i * 3));
    const Tensor whole = device().make(Type::i32, {5, kColumns});
    device().gather(device().copy_of<std::int32_t>(Type::i32, {kRows, kColumns}, integers), indices, {},
                    whole);
    EXPECT_EQ(device().values_of<std::int32_t>(whole), from_integers);
    // Rows that begin within others, as the next tokens of a text do.
    const Tensor stored = device().copy_of<std::uint16_t>(Type::u16, {kRows * kColumns}, ids);
    for (std::int64_t skip : {0, 1}) {
        const auto next = device().copy_of<std::int32_t>(Type::i32, {4}, std::vector{48, 0, 7, 7});
        const Tensor out_ids = whole.first_rows(4);
        device().gather(stored.view(skip, {kRows - 1, kColumns}), next, {}, out_ids);
        std::vector<std::int32_t> from_ids;
        for (std::int64_t row : {48, 0, 7, 7})
            for (std::int64_t c = 0; c < kColumns; ++c)
                from_ids.push_back(ids[static_cast<std::size_t>(row * kColumns + c + skip)]);
        EXPECT_EQ(device().values_of<std::int32_t>(out_ids), from_ids) << skip;
    }
}

// For some shapes, cuBLASLt rounds the product before it adds the bias: seen on an H100.
TEST_P(OperationsTest, LinearIsTheMatrixProductWithBiasAndActivation) {
    for (auto [rows, inputs, outputs] : kSizes) {
        const auto x = numbers(rows * inputs, 3), w = numbers(outputs * inputs, 4);
        const auto b = numbers(outputs, 5);
        for (Activation activation : {Activation::none, Activation::relu}) {
            std::vector<double> reference, products;
            for (std::int64_t r = 0; r < rows; ++r) {
                for (std::int64_t n = 0; n < outputs; ++n) {
                    double sum = 0;
                    for (std::int64_t k = 0; k < inputs; ++k) {
                        sum += static_cast<double>(x[static_cast<std::size_t>(r * inputs + k)]) *
                               w[static_cast<std::size_t>(n * inputs + k)];
                    }
                    products.push_back(sum);
                    sum += b[static_cast<std::size_t>(n)];
                    reference.push_back(activation == Activation::relu ? std::max(sum, 0.0) : sum);
                }
            }
            const Tensor y = flowing({rows, outputs});
            device().linear(flowing({rows, inputs}, x), flowing({outputs, inputs}, w), flowing({outputs}, b),
                            activation, y);
            expect_tensor(y, reference, kTolerance,
                          "linear " + std::to_string(rows) + "x" + std::to_string(inputs) + "x" +
                              std::to_string(outputs),
                          products);
        }
    }
}

TEST_P(OperationsTest, LinearBackwardIsTheTransposedProductsAndTheSumOfRows) {
    for (auto [rows, inputs, outputs] : kSizes) {
        const auto x = numbers(rows * inputs, 6), w = numbers(outputs * inputs, 7);
        const auto dy = numbers(rows * outputs, 8);
        std::vector<double> dx(static_cast<std::size_t>(rows * inputs)),
            dw(static_cast<std::size_t>(outputs * inputs));
        std::vector<double> db(static_cast<std::size_t>(outputs));
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t n = 0; n < outputs; ++n) {
                const double slope = dy[static_cast<std::size_t>(r * outputs + n)];
                db[static_cast<std::size_t>(n)] += slope;
                for (std::int64_t k = 0; k < inputs; ++k) {
                    dx[static_cast<std::size_t>(r * inputs + k)] +=
                        slope * w[static_cast<std::size_t>(n * inputs + k)];
                    dw[static_cast<std::size_t>(n * inputs + k)] +=
                        slope * x[static_cast<std::size_t>(r * inputs + k)];
                }
            }
        }
        const Tensor tx = flowing({rows, inputs}, x), tw = flowing({outputs, inputs}, w);
        const Tensor tdy = flowing({rows, outputs}, dy);
        const Tensor tdx = flowing({rows, inputs});
        // What they hold before must not count: gradients are set, not added to.
        const Tensor tdw = floats({outputs, inputs}, random_values(outputs * inputs, 9));
        const Tensor tdb = floats({outputs}, random_values(outputs, 10));
        device().linear_backward_input(tdy, tw, tdx);
        device().linear_backward_parameters(tdy, tx, tdw, tdb);
        expect_tensor(tdx, dx, kTolerance, "dx");
        expect_tensor(tdw, dw, kTolerance, "dw");
        expect_tensor(tdb, db, kTolerance, "db");
        // Unless that is asked for.
        device().linear_backward_parameters(tdy, tx, tdw, tdb, Write::add);
        for (auto* gradient : {&dw, &db})
            for (double& value : *gradient) value *= 2;
        expect_tensor(tdw, dw, kTolerance, "dw, twice");
        expect_tensor(tdb, db, kTolerance, "db, twice");
    }
}

// As gpt has its logits. What lies behind a row's numbers is no number, and must not be seen anywhere.
TEST_P(OperationsTest, RowsOfOutputsMayBeLongerThanThereAreOutputs) {
    constexpr std::int64_t kRows = 21, kInputs = 16;
    for (const auto& size : {std::pair<std::int64_t, std::int64_t>{13, 16}, {64, 67}, {1001, 1024}}) {
        const std::int64_t outputs = size.first, length = size.second;
        const auto x = numbers(kRows * kInputs, 50), w = numbers(outputs * kInputs, 51),
                   b = numbers(outputs, 52), dy = numbers(kRows * outputs, 53);
        const auto lengthened = [&](const std::vector<float>& all) {
            std::vector<float> longer;
            for (std::int64_t row = 0; row < kRows; ++row) {
                longer.insert(longer.end(), all.begin() + row * outputs, all.begin() + (row + 1) * outputs);
                longer.resize(static_cast<std::size_t>((row + 1) * length),
                              std::numeric_limits<float>::quiet_NaN());
            }
            return flowing({kRows, length}, longer);
        };
        const auto begins = [&](const Tensor& longer) {
            std::vector<double> all;
            const auto found = values(longer);
            for (std::int64_t row = 0; row < kRows; ++row)
                all.insert(all.end(), found.begin() + row * length, found.begin() + row * length + outputs);
            return all;
        };
        // Both are rounded, and so may be what each is of before (`summand`).
        const auto expect_like = [&](const Tensor& longer, const Tensor& plain, const std::string& what,
                                     const Tensor& summand = {}) {
            const auto found = begins(longer);
            const auto before = summand ? values(summand) : std::vector<float>(found.size());
            std::vector<double> rounded;
            for (std::size_t i = 0; i < found.size(); ++i)
                rounded.push_back(std::abs(found[i]) + 2 * std::abs(static_cast<double>(before[i])));
            expect_tensor(plain, found, kTolerance, what, rounded);
        };
        const Tensor tx = flowing({kRows, kInputs}, x), tw = flowing({outputs, kInputs}, w);
        const Tensor product = flowing({kRows, outputs});
        device().linear(tx, tw, {}, Activation::none, product);
        for (const Tensor& bias : {Tensor{}, flowing({outputs}, b)}) {
            for (const Activation activation : {Activation::none, Activation::relu}) {
                const Tensor plain = flowing({kRows, outputs}), longer = lengthened(dy);
                device().linear(tx, tw, bias, activation, plain);
                device().linear(tx, tw, bias, activation, longer);
                expect_like(longer, plain, "y", product);
            }
        }
        const Tensor plain_dy = flowing({kRows, outputs}, dy), longer_dy = lengthened(dy);
        const Tensor dx[] = {flowing({kRows, kInputs}), flowing({kRows, kInputs})};
        const Tensor dw[] = {floats({outputs, kInputs}), floats({outputs, kInputs})};
        const Tensor db[] = {floats({outputs}), floats({outputs})};
        const Tensor d_logits[] = {flowing({kRows, outputs}), lengthened(dy)};
        const Tensor metrics[] = {device().make(Type::f64, {2}), device().make(Type::f64, {2})};
        const Tensor labels =
            device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, std::vector<std::int32_t>(kRows, 5));
        for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
            const Tensor& d = i == 0 ? plain_dy : longer_dy;
            device().linear_backward_input(d, tw, dx[i]);
            device().linear_backward_parameters(d, tx, dw[i], db[i]);
            device().softmax_cross_entropy(d, outputs, labels, 1, metrics[i], d_logits[i]);
        }
        const auto wide = [&](const Tensor& tensor) {
            const auto found = values(tensor);
            return std::vector<double>(found.begin(), found.end());
        };
        expect_tensor(dx[1], wide(dx[0]), kTolerance, "dx");
        expect_tensor(dw[1], wide(dw[0]), kTolerance, "dw");
        expect_tensor(db[1], wide(db[0]), kTolerance, "db");
        expect_like(d_logits[1], d_logits[0], "the logits' gradient");
        const auto loss = device().values_of<double>(metrics[0]),
                   again = device().values_of<double>(metrics[1]);
        EXPECT_GT(loss[0], 0);
        EXPECT_NEAR(again[0], loss[0], 1e-6 * loss[0]);
        EXPECT_EQ(again[1], loss[1]);
    }
}

// y, or with `dy` and a value to be summed into, the gradients: the sums that define a convolution.
struct ConvolutionReference {
    Convolution c;
    std::int64_t rows;

    // Calls work(x, w, y) with the places of each product.
    template <typename Work>
    void for_each_product(Work work) const {
        const ImageShape out = c.y();
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t o = 0; o < c.outputs; ++o)
                for (std::int64_t i = 0; i < out.height; ++i)
                    for (std::int64_t j = 0; j < out.width; ++j)
                        for (std::int64_t channel = 0; channel < c.x.channels; ++channel)
                            for (std::int64_t k = 0; k < c.kernel; ++k)
                                for (std::int64_t l = 0; l < c.kernel; ++l) {
                                    const std::int64_t line = i + k - c.padding, column = j + l - c.padding;
                                    if (line < 0 || line >= c.x.height || column < 0 || column >= c.x.width)
                                        continue;
                                    work(static_cast<std::size_t>(
                                             ((r * c.x.channels + channel) * c.x.height + line) * c.x.width +
                                             column),
                                         static_cast<std::size_t>(
                                             ((o * c.x.channels + channel) * c.kernel + k) * c.kernel + l),
                                         static_cast<std::size_t>(
                                             ((r * c.outputs + o) * out.height + i) * out.width + j));
                                }
    }
};

// [rows, convolution]: cnn's and unet2d's kinds, and sizes that no vector width divides.
const ConvolutionReference kConvolutions[] = {
    {{{1, 28, 28}, 32, 3, 0}, 2}, {{{32, 12, 10}, 16, 3, 0}, 3}, {{{3, 16, 16}, 8, 3, 1}, 1},
    {{{5, 7, 9}, 3, 1, 0}, 4},    {{{2, 5, 5}, 7, 5, 2}, 2},
};

TEST_P(OperationsTest, ConvolutionsAreTheSumsThatDefineThem) {
    // A larger one before each, of NaNs: nothing of what it leaves in memory that they share may count.
    const Convolution large{{24, 14, 14}, 24, 3, 1};
    const auto nans = [&](const Shape& shape) {
        return flowing(shape, std::vector<float>(static_cast<std::size_t>(elements_of(shape)), NAN));
    };
    const Tensor nan_images = nans({2, large.x.numbers()}), nan_weights = nans({24, 24, 3, 3}),
                 thrown_away = nans({2, large.y().numbers()});
    const auto leave_nans = [&] {
        device().convolve(large, nan_images, nan_weights, {}, Activation::none, thrown_away);
    };
    for (const auto& reference : kConvolutions) {
        const Convolution& c = reference.c;
        const std::int64_t rows = reference.rows, weights = c.outputs * c.x.channels * c.kernel * c.kernel;
        const auto plane = static_cast<std::size_t>(c.y().height * c.y().width);
        const auto x = numbers(rows * c.x.numbers(), 31), w = numbers(weights, 32),
                   b = numbers(c.outputs, 33), dy = numbers(rows * c.y().numbers(), 34);
        std::vector<double> y(dy.size()), dx(x.size()), dw(w.size()), db(b.size());
        for (std::size_t i = 0; i < y.size(); ++i) {
            const std::size_t channel = i / plane % b.size();
            y[i] = b[channel];
            db[channel] += dy[i];
        }
        reference.for_each_product([&](std::size_t from, std::size_t weight, std::size_t to) {
            y[to] += static_cast<double>(x[from]) * w[weight];
            dx[from] += static_cast<double>(dy[to]) * w[weight];
            dw[weight] += static_cast<double>(dy[to]) * x[from];
        });
        // In bf16 a library may round before the bias is added, and the gradient of the weights, too.
        const double library = type() == Type::bf16 ? kBfloat16Rounding : kTolerance;
        const Shape w_shape{c.outputs, c.x.channels, c.kernel, c.kernel};
        const Tensor tx = flowing({rows, c.x.numbers()}, x), tw = flowing(w_shape, w);
        const Tensor tb = flowing({c.outputs}, b), tdy = flowing({rows, c.y().numbers()}, dy);
        for (int round = 0; round < 2; ++round) {  // the second with what was prepared in the first
            leave_nans();
            for (const Activation activation : {Activation::none, Activation::relu}) {
                auto expected = y;
                if (activation == Activation::relu)
                    for (double& value : expected) value = std::max(value, 0.0);
                const Tensor ty = flowing({rows, c.y().numbers()});
                device().convolve(c, tx, tw, tb, activation, ty);
                expect_tensor(ty, expected, library, "y");
            }
            // What they hold before must not count.
            const Tensor tdx = flowing({rows, c.x.numbers()}, x), tdw = floats(w_shape, w);
            const Tensor tdb = floats({c.outputs}, b);
            leave_nans();
            device().convolve_backward_input(c, tdy, tw, tdx);
            leave_nans();
            device().convolve_backward_parameters(c, tdy, tx, tdw, tdb);
            expect_tensor(tdx, dx, kTolerance, "dx");
            expect_tensor(tdw, dw, library, "dw");
            expect_tensor(tdb, db, kTolerance, "db");
        }
    }
}

TEST_P(OperationsTest, PoolingTakesTheLargestAndItsGradientGoesThereAlone) {
    for (const ImageShape shape : {ImageShape{1, 2, 2}, ImageShape{3, 4, 6}, ImageShape{2, 5, 7}}) {
        constexpr std::int64_t kRows = 2;
        auto x = numbers(kRows * shape.numbers(), 35);
        x[0] = x[1] = 2;  // the first of equals
        const std::int64_t lines = shape.height / 2, columns = shape.width / 2;
        const std::int64_t outputs = shape.channels * lines * columns;
        const auto dy = numbers(kRows * outputs, 36);
        std::vector<float> y;
        std::vector<float> dx(x.size());
        for (std::int64_t plane = 0; plane < kRows * shape.channels; ++plane)
            for (std::int64_t line = 0; line < lines; ++line)
                for (std::int64_t column = 0; column < columns; ++column) {
                    const std::int64_t from = (plane * shape.height + 2 * line) * shape.width + 2 * column;
                    auto best = static_cast<std::size_t>(from);
                    for (const std::int64_t at : {from + 1, from + shape.width, from + shape.width + 1})
                        if (x[static_cast<std::size_t>(at)] > x[best]) best = static_cast<std::size_t>(at);
                    dx[best] = dy[y.size()];
                    y.push_back(x[best]);
                }
        const Tensor ty = flowing({kRows, outputs});
        const Tensor picked = device().make(Type::u8, {kRows, outputs});
        device().max_pool(shape, flowing({kRows, shape.numbers()}, x), ty, picked);
        EXPECT_EQ(values(ty), y);
        const Tensor tdx = flowing({kRows, shape.numbers()}, x);
        device().max_pool_backward(shape, flowing({kRows, outputs}, dy), picked, tdx);
        EXPECT_EQ(values(tdx), dx);
    }
}

// A training that diverges must not look sound.
TEST_P(OperationsTest, NaNGoesThroughReluAndPooling) {
    if (device().name() == "cpu")
        GTEST_SKIP()
            << "on CPUs oneDNN's ReLU makes NaN 0, and pooling that keeps it took 4 % of a cnn's time";
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto expect_nan = [&](const Tensor& y, std::size_t place, const char* what) {
        const auto all = values(y);
        for (std::size_t i = 0; i < all.size(); ++i)
            EXPECT_EQ(std::isnan(all[i]), i == place) << what << ", " << i;
    };
    for (std::size_t place = 0; place < 4; ++place) {
        std::vector<float> x{1, 2, 3, 4};
        x[place] = nan;
        const Tensor y = flowing({1, 1}), picked = device().make(Type::u8, {1, 1}), dx = flowing({1, 4});
        device().max_pool({1, 2, 2}, flowing({1, 4}, x), y, picked);
        expect_nan(y, 0, "max-pool");
        device().max_pool_backward({1, 2, 2}, flowing({1, 1}, {5}), picked, dx);
        std::vector<float> there(4);
        there[place] = 5;
        EXPECT_EQ(values(dx), there) << "its gradient";
    }
    const Tensor x = flowing({3, 2}, {1, 1, nan, 1, -1, -1}), y = flowing({3, 1});
    device().linear(x, flowing({1, 2}, {1, 1}), flowing({1}, {0}), Activation::relu, y);
    expect_nan(y, 1, "linear with ReLU");
    device().linear(x, flowing({1, 2}, {1, 1}), {}, Activation::relu, y);
    expect_nan(y, 1, "linear without bias, with ReLU");
    const Convolution c{{1, 2, 2}, 1, 1, 0};
    const Tensor image = flowing({1, 4}, {1, -1, nan, 1}), convolved = flowing({1, 4});
    device().convolve(c, image, flowing({1, 1, 1, 1}, {1}), flowing({1}, {0}), Activation::relu, convolved);
    expect_nan(convolved, 2, "convolution with ReLU");
}

// No operation may read it later than the call returns.
TEST_P(DeviceTest, UploadedMemoryMayBeUsedForSomethingElseAtOnce) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300000},
                                    std::size_t{1} << 20, std::size_t{1048577}}) {
        std::vector<Tensor> tensors;
        for (int i = 0; i < 20; ++i) {
            std::vector<float> values(count, static_cast<float>(i));
            tensors.push_back(device().make(Type::f32, {static_cast<std::int64_t>(count)}));
            device().upload(values.data(), tensors.back());
            std::fill(values.begin(), values.end(), -1.0f);
        }
        for (int i = 0; i < 20; ++i)
            EXPECT_EQ(device().values_of<float>(tensors[static_cast<std::size_t>(i)]),
                      std::vector<float>(count, static_cast<float>(i)))
                << count;
    }
}

// cuBLASLt chooses an algorithm by the alignment of all that it reads and writes, extras among them.
TEST_P(OperationsTest, ABiasMayBeginAnywhere) {
    constexpr std::int64_t kRows = 8, kInputs = 16, kOutputs = 32;
    const auto x = numbers(kRows * kInputs, 3), w = numbers(kOutputs * kInputs, 4),
               b = numbers(kOutputs + 1, 5);
    const Tensor tx = flowing({kRows, kInputs}, x), tw = flowing({kOutputs, kInputs}, w),
                 tb = flowing({kOutputs + 1}, b), y = flowing({kRows, kOutputs});
    for (const std::int64_t from : {0, 1}) {
        device().linear(tx, tw, tb.view(from, {kOutputs}), Activation::none, y);
        const auto all = values(y);
        for (std::int64_t n = 0; n < kOutputs; ++n) {
            double sum = b[static_cast<std::size_t>(n + from)];
            for (std::int64_t k = 0; k < kInputs; ++k)
                sum += static_cast<double>(x[static_cast<std::size_t>(k)]) *
                       w[static_cast<std::size_t>(n * kInputs + k)];
            EXPECT_NEAR(all[static_cast<std::size_t>(n)], sum, type() == Type::bf16 ? 0.05 : 1e-4);
        }
    }
}

TEST_P(OperationsTest, DropoutKeepsTheSameNumbersWhereverTheRowsAre) {
    constexpr std::int64_t kRows = 40, kColumns = 130;
    const auto x = numbers(kRows * kColumns, 37, 1, 2);
    for (const float rate : {0.0f, 0.25f, 0.5f}) {
        const Tensor tx = flowing({kRows, kColumns}, x), whole = flowing({kRows, kColumns});
        device().dropout(tx, {rate, 77, 0}, whole);
        const auto y = values(whole);
        std::int64_t kept = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            if (y[i] == 0) continue;
            EXPECT_NEAR(y[i], x[i] / (1 - rate),
                        y[i] * (kTolerance + (type() == Type::bf16 ? kBfloat16Rounding : 0)));
            ++kept;
        }
        EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(y.size()), 1 - rate, 0.03);
        // The lower half of the rows alone, as another rank has them; in place.
        const Tensor half = flowing({kRows / 2, kColumns}, {x.begin() + kRows / 2 * kColumns, x.end()});
        device().dropout(half, {rate, 77, kRows / 2}, half);
        EXPECT_EQ(values(half), std::vector<float>(y.begin() + kRows / 2 * kColumns, y.end()));
        device().dropout(tx, {rate, 78, 0}, whole);
        EXPECT_EQ(values(whole) == y, rate == 0) << "another key keeps others";
    }
}

TEST_P(OperationsTest, ReluPassesTheGradientWhereTheOutputIsPositiveAlsoInPlace) {
    auto y = numbers(1001, 11);
    for (std::size_t i = 0; i < y.size(); i += 3) y[i] = 0;
    const auto dy = numbers(1001, 12);
    std::vector<float> reference;
    for (std::size_t i = 0; i < y.size(); ++i) reference.push_back(y[i] > 0 ? dy[i] : 0.0f);
    const Tensor gradient = flowing({1001}, dy);
    device().relu_backward(flowing({1001}, y), gradient, gradient);
    EXPECT_EQ(values(gradient), reference);
}

TEST_P(OperationsTest, SoftmaxCrossEntropyHasTheLossTheCountAndTheGradient) {
    constexpr std::int64_t kRows = 523, kClasses = 10;
    constexpr float kScale = 0.125f;
    auto logits = numbers(kRows * kClasses, 13, -4, 4);
    for (std::int64_t c = 0; c < kClasses; ++c)
        logits[static_cast<std::size_t>(c)] = static_cast<float>(1000 - 4 * c);  // would overflow exp()
    for (std::int64_t r = 1; r < kRows; ++r)  // in bf16 two could be as large, but the best is one
        logits[static_cast<std::size_t>(r * kClasses + r % kClasses)] += 8;
    logits = representable(logits);
    std::vector<std::int32_t> labels;
    std::vector<double> gradient;
    double loss = 0, correct = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
        const float* row = &logits[static_cast<std::size_t>(r * kClasses)];
        const auto best = std::max_element(row, row + kClasses) - row;
        labels.push_back(static_cast<std::int32_t>(r % 3 != 1 ? best : (best + r) % kClasses));
        double total = 0;
        for (std::int64_t c = 0; c < kClasses; ++c)
            total += std::exp(static_cast<double>(row[c]) - row[best]);
        loss -= static_cast<double>(row[labels.back()]) - row[best] - std::log(total);
        correct += best == labels.back() ? 1 : 0;
        for (std::int64_t c = 0; c < kClasses; ++c) {
            const double probability = std::exp(static_cast<double>(row[c]) - row[best]) / total;
            gradient.push_back(kScale * (probability - (c == labels.back() ? 1 : 0)));
        }
    }
    const Tensor metrics = device().make(Type::f64, {2}), d_logits = flowing({kRows, kClasses});
    const Tensor targets = device().copy_of<std::int32_t>(Type::i32, {kRows, 1}, labels);
    device().softmax_cross_entropy(flowing({kRows, kClasses}, logits), kClasses, targets, kScale, metrics,
                                   d_logits);
    expect_tensor(d_logits, gradient, kTolerance, "gradient");
    // Called again without a gradient, the metrics add up.
    device().softmax_cross_entropy(flowing({kRows, kClasses}, logits), kClasses, targets, kScale, metrics,
                                   {});
    const auto sums = device().values_of<double>(metrics);
    EXPECT_NEAR(sums[0], 2 * loss, 1e-5 * loss);
    EXPECT_EQ(sums[1], 2 * correct);
}

TEST_P(OperationsTest, SquaredErrorHasTheLossAndTheGradient) {
    for (std::int64_t columns : {std::int64_t{1}, std::int64_t{3}}) {
        constexpr std::int64_t kRows = 301;
        constexpr float kScale = 0.25f;
        const auto prediction = numbers(kRows * columns, 14), target = random_values(kRows * columns, 15);
        double loss = 0;
        std::vector<double> gradient;
        for (std::size_t i = 0; i < prediction.size(); ++i) {
            const double difference = static_cast<double>(prediction[i]) - target[i];
            loss += difference * difference / static_cast<double>(columns);
            gradient.push_back(kScale * 2 * difference / static_cast<double>(columns));
        }
        const Tensor metrics = device().make(Type::f64, {2}), slope = flowing({kRows, columns});
        device().squared_error(flowing({kRows, columns}, prediction), floats({kRows, columns}, target),
                               kScale, metrics, slope);
        expect_tensor(slope, gradient, kTolerance, "gradient");
        EXPECT_NEAR(device().values_of<double>(metrics)[0], loss, 1e-6 * loss);
        EXPECT_EQ(device().values_of<double>(metrics)[1], 0);
    }
}

TEST_P(OperationsTest, Adds) {
    for (std::int64_t count : {1, 31, 1000, 300'007}) {
        const auto x = numbers(count, 18), y = numbers(count, 19);
        std::vector<double> sum;
        for (std::size_t i = 0; i < x.size(); ++i) sum.push_back(static_cast<double>(x[i]) + y[i]);
        const Tensor out = flowing({count}, y);
        device().add(flowing({count}, x), out);
        expect_tensor(out, sum, kTolerance, "x + y");
    }
}

TEST_P(OperationsTest, AddsAndConvertsFromAndToWhereverTensorsBegin) {
    constexpr std::int64_t kCount = 1000;
    const auto x = numbers(kCount, 40), y = numbers(kCount, 41);
    std::vector<double> sum;
    for (std::size_t i = 0; i < x.size(); ++i) sum.push_back(static_cast<double>(x[i]) + y[i]);
    const auto further = [&](std::int64_t skip, const std::vector<float>& given) {
        auto longer = given;
        longer.insert(longer.begin(), static_cast<std::size_t>(skip), 7.0f);
        return flowing({skip + kCount}, longer).view(skip, {kCount});
    };
    for (const std::int64_t skip : {1, 2, 8}) {
        const Tensor out = further(skip, y);
        device().add(further(3, x), out);
        expect_tensor(out, sum, kTolerance, "x + y, " + std::to_string(skip) + " further on");
        const Tensor wide = floats({kCount + 1}).view(1, {kCount});
        device().convert(out, wide);
        EXPECT_EQ(values(wide), values(out));
        const Tensor back = further(skip, x);
        device().convert(wide, back);
        EXPECT_EQ(values(back), values(out));
    }
}

TEST_P(DeviceTest, Scales) {
    for (std::int64_t count : {1, 31, 1000, 300'007}) {
        auto x = random_values(count, 19);
        const Tensor out = upload(device(), {count}, x);
        device().scale(out, -0.5f);
        for (float& value : x) value *= -0.5f;
        EXPECT_EQ(device().values_of<float>(out), x);
    }
}

// After a failure nothing is done any more. CUDA would also say it to whoever asks next, which is not the one to blame.
TEST_P(DeviceTest, WhatHasFailedDoesNothingAndIsNotBlamedOnAnother) {
    const auto open = [&] { return GetParam() == "cpu" ? open_cpu(1) : std::move(open_cuda({}).value()); };
    const auto expect_failed = [&](Device& failed, const Tensor& tensor) {
        ASSERT_FALSE(failed.status());
        const float other = 7;
        failed.upload(&other, tensor);
        failed.scale(tensor, 3);
        failed.zero(tensor);
        EXPECT_EQ(device().values_of<float>(tensor), std::vector<float>{2});
        const Tensor product = device().make(Type::f32, {1, 1});
        device().linear(tensor, tensor, {}, Activation::none, product);
        EXPECT_EQ(device().values_of<float>(product), std::vector<float>{4});
    };
    const auto one = open();
    const Tensor tensor = upload(*one, {1, 1}, {2});
    one->synchronize();  // device() reads it, on another stream
    EXPECT_FALSE(one->make(Type::u8, {std::int64_t{1} << 47}));
    expect_failed(*one, tensor);
    if (GetParam() == "cpu") return;
    const auto another = open();
    const Tensor two = upload(*another, {1, 1}, {2}), none = another->make(Type::f32, {0, 8});
    another->synchronize();
    another->layer_norm(none, two, two, none, none);  // a kernel of no blocks
    expect_failed(*another, two);
}

TEST_P(DeviceTest, SquareSumIsThatOfAllAndTheSameEachTime) {
    for (std::int64_t count : {1, 31, 1000, 300'007}) {
        auto x = random_values(count, 20);
        double sum = 0;
        for (float value : x) sum += static_cast<double>(value) * value;
        const Tensor sums = device().make(Type::f64, {kSquareSums});
        std::vector<double> found;
        for (int i = 0; i < 2; ++i) {
            device().square_sum(upload(device(), {count}, x), sums);
            found.push_back(device().values_of<double>(sums)[0]);
        }
        EXPECT_NEAR(found[0], sum, 1e-12 * sum) << count;
        EXPECT_EQ(found[0], found[1]);
        for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            x.back() = bad;
            device().square_sum(upload(device(), {count}, x), sums);
            EXPECT_FALSE(std::isfinite(device().values_of<double>(sums)[0])) << count;
        }
    }
}

TEST_P(DeviceTest, TheSameCallsGiveTheSameBits) {
    // Ranks stay bit-equal only if a device computes reproducibly.
    const Tensor x = upload(device(), {64, 784}, random_values(std::int64_t{64} * 784, 16));
    const Tensor dy = upload(device(), {64, 256}, random_values(std::int64_t{64} * 256, 17));
    std::vector<std::vector<float>> results;
    for (int i = 0; i < 2; ++i) {
        const Tensor dw = device().make(Type::f32, {256, 784}), db = device().make(Type::f32, {256});
        device().linear_backward_parameters(dy, x, dw, db);
        auto values = device().values_of<float>(dw);
        const auto bias = device().values_of<float>(db);
        values.insert(values.end(), bias.begin(), bias.end());
        results.push_back(values);
    }
    EXPECT_EQ(results[0], results[1]);
}

TEST_P(DeviceTest, CountsTheMemoryThatItsOperationsTakeAndKnowsItBefore) {
    const std::int64_t at_first = device().memory().held();
    EXPECT_LE(at_first, device().workspace_bytes());
    constexpr std::int64_t kRows = 4;
    const Convolution c{{3, 9, 8}, 5, 3, 1};
    const Tensor x = device().make(Type::f32, {kRows, c.x.numbers()}),
                 w = device().make(Type::f32, {5, 3, 3, 3}), b = device().make(Type::f32, {5}),
                 y = device().make(Type::f32, {kRows, c.y().numbers()});
    const auto before = device().available_memory(1);
    const std::int64_t tensors = device().memory().held();
    device().convolve(c, x, w, b, Activation::none, y);
    device().sum_channels(c.y(), y, b);
    device().linear_backward_parameters(y, x, device().make(Type::f32, {y.columns(), x.columns()}), {});
    const std::int64_t taken = device().memory().held() - tensors;
    EXPECT_LE(taken, device().convolution_scratch(c, kRows, Type::f32) + device().workspace_bytes());
    if (GetParam() == "cpu") return;  // there, others take memory, too
    EXPECT_GE(at_first, 32 << 20) << "cuBLASLt's workspace";
    EXPECT_EQ(at_first, device().workspace_bytes()) << "what is foreseen is taken at once";
    // What is free and what is held: memory that is counted goes from the one to the other. A GPU loads
    // kernels when they are first used.
    const bool is_emulated = device().description().find("emulated") != std::string::npos;
    EXPECT_NEAR(static_cast<double>(*device().available_memory(1)), static_cast<double>(before.value_or(0)),
                is_emulated ? 0 : 256 << 20);
    // Before the steps: to grow it, cudaFree waits for all that is queued.
    device().reserve_convolution_scratch(at_first + (64 << 20));
    EXPECT_GE(device().memory().held(), tensors + (64 << 20)) << "what is reserved is taken at once";
}

INSTANTIATE_ON_EACH_DEVICE(DeviceTest);
INSTANTIATE_ON_EACH_DEVICE_IN_EACH_PRECISION(OperationsTest);

TEST(CpuDevice, OutOfMemoryIsAnErrorThatTurnsLaterOperationsIntoNothing) {
    const auto device = open_cpu(1);
    const Tensor good = device->make(Type::f32, {4});
    const Tensor impossible = device->make(Type::f32, {std::int64_t{1} << 60});
    EXPECT_FALSE(impossible);
    ASSERT_FALSE(device->status());
    EXPECT_EQ(device->status().error().fault, Fault::device);
    EXPECT_NE(device->status().error().message.find("out of memory"), std::string::npos);
    device->linear(impossible, impossible, impossible, Activation::none, impossible);  // must not crash
    device->zero(impossible);
}

}  // namespace
}  // namespace dp::trainer
