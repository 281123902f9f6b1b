// SPDX-License-Identifier: Apache-2.0
//
// The operations on images that unet2d adds, on every device: results against the same formulas in float64,
// gradients against slopes of those. (Convolutions of stride 1, pooling and dropout: device_test.cpp.)
#include <cmath>

#include "devices.hpp"
#include "slopes.hpp"

namespace dp::trainer {
namespace {

constexpr double kTolerance = 3e-6;

class ImageOperationsTest : public OnEachDeviceInEachPrecision {
 protected:
    // Both halves, of a batch that is all here.
    void norm_forward(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                      const Tensor& running, const Tensor& saved, const Tensor& y) {
        const Tensor sums = device().make(Type::f64, {2, norm.x.channels});
        device().batch_norm_sums(norm, x, sums);
        device().batch_norm(norm, x, sums, x.rows(), w, b, running, saved, y);
    }
    void norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& y, const Tensor& w,
                       const Tensor& saved, const Tensor& dy, const Tensor& dx, const Tensor& dw,
                       const Tensor& db) {
        const Tensor sums = device().make(Type::f64, {2, norm.x.channels});
        device().batch_norm_backward_sums(norm, x, y, saved, dy, dx, sums, dw, db);
        device().batch_norm_backward(norm, x, w, saved, sums, x.rows(), dx);
    }
};

struct Normed {
    std::vector<double> y, means, variances;  // the variances unbiased
};

Normed batch_norm(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
                  std::size_t rows, std::size_t plane, bool relu) {
    const std::size_t channels = w.size();
    Normed result{x, {}, {}};
    const auto count = static_cast<double>(rows * plane);
    for (std::size_t c = 0; c < channels; ++c) {
        double mean = 0, variance = 0;
        auto each = [&](auto work) {
            for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t i = 0; i < plane; ++i) work((r * channels + c) * plane + i);
        };
        each([&](std::size_t i) { mean += x[i] / count; });
        each([&](std::size_t i) { variance += (x[i] - mean) * (x[i] - mean) / count; });
        each([&](std::size_t i) {
            const double y = (x[i] - mean) / std::sqrt(variance + 1e-5) * w[c] + b[c];
            result.y[i] = relu ? std::max(y, 0.0) : y;
        });
        result.means.push_back(mean);
        result.variances.push_back(variance * count / (count - 1));
    }
    return result;
}

// Of which a GPU cuts each channel into parts.
TEST_P(ImageOperationsTest, BatchNormOfLargeImagesAndItsGradientsAreTheFormulas) {
    constexpr std::int64_t kRows = 3, kChannels = 2, kPlane = 45 * 47, kColumns = kChannels * kPlane;
    const BatchNorm norm{{kChannels, 45, 47}, false};
    const auto x = numbers(kRows * kColumns, 1, -2, 3), dy = numbers(kRows * kColumns, 2);
    const auto w = random_values(kChannels, 3, 0.5f, 2), b = random_values(kChannels, 4);
    const Tensor tx = flowing({kRows, kColumns}, x), tdy = flowing({kRows, kColumns}, dy),
                 tw = floats({kChannels}, w), tb = floats({kChannels}, b),
                 running = floats({2, kChannels}, {0, 0, 1, 1}), saved = floats({2, kChannels}),
                 y = flowing({kRows, kColumns}), dx = flowing({kRows, kColumns}), dw = floats({kChannels}),
                 db = floats({kChannels}), sums = floats({kChannels});
    norm_forward(norm, tx, tw, tb, running, saved, y);
    const Normed expected = batch_norm(widened(x), widened(w), widened(b), kRows, kPlane, false);
    expect_tensor(y, expected.y, kTolerance, "y");
    norm_backward(norm, tx, y, tw, saved, tdy, dx, dw, db);
    device().sum_channels(norm.x, tdy, sums);

    constexpr double kCount = kRows * kPlane;
    const auto channel_of = [](std::size_t i) { return i / kPlane % kChannels; };
    const auto normed = [&](std::size_t i) {
        const std::size_t c = channel_of(i);
        const auto weight = static_cast<double>(w[c]), bias = static_cast<double>(b[c]);
        return (expected.y[i] - bias) / weight;
    };
    std::vector<double> products(kChannels), gradients(kChannels), slopes;
    for (std::size_t i = 0; i < x.size(); ++i) {
        products[channel_of(i)] += static_cast<double>(dy[i]) * normed(i);
        gradients[channel_of(i)] += static_cast<double>(dy[i]);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = channel_of(i);
        const double variance = expected.variances[c] * (kCount - 1) / kCount + 1e-5;
        slopes.push_back(
            static_cast<double>(w[c]) / std::sqrt(variance) *
            (static_cast<double>(dy[i]) - gradients[c] / kCount - normed(i) * products[c] / kCount));
    }
    expect_tensor(dx, slopes, 1e-2 * kBfloat16Rounding + kTolerance, "dx");
    expect_close(values(dw), products, 1e-4, "dw");
    expect_close(values(db), gradients, 1e-4, "db");
    expect_close(values(sums), gradients, 1e-4, "sums of channels");
}

// Two ranks, one of which has fewer rows than the other, norm as one that has them all: the sums that they
// tell each other are all that they need. Far from zero, where squares are large and variances small.
TEST_P(ImageOperationsTest, BatchNormOfRowsInTwoPlacesIsThatOfAllOfThem) {
    constexpr std::int64_t kRows = 5, kFirst = 2, kChannels = 3, kColumns = kChannels * 6 * 7;
    const BatchNorm norm{{kChannels, 6, 7}, true};
    const float offset = type() == Type::f32 ? 100.0f : 0.0f;
    const auto x = numbers(kRows * kColumns, 1, offset - 1, offset + 1), dy = numbers(kRows * kColumns, 2);
    const auto w = random_values(kChannels, 3, 0.5f, 2), b = random_values(kChannels, 4);
    const Tensor tw = floats({kChannels}, w), tb = floats({kChannels}, b);
    const auto statistics = [&] { return floats({2, kChannels}, {0, 0, 0, 1, 1, 1}); };
    const Tensor running = statistics(), saved = floats({2, kChannels}), dw = floats({kChannels}),
                 db = floats({kChannels});
    const Tensor tx = flowing({kRows, kColumns}, x), y = flowing({kRows, kColumns}),
                 dx = flowing({kRows, kColumns});
    norm_forward(norm, tx, tw, tb, running, saved, y);
    norm_backward(norm, tx, y, tw, saved, flowing({kRows, kColumns}, dy), dx, dw, db);

    struct Part {
        Tensor x, dy, running, saved, y, dx, sums, dw, db;
    };
    std::vector<Part> parts;
    const auto rows_of = [&](const std::vector<float>& all, std::int64_t first, std::int64_t rows) {
        const auto from = all.begin() + first * kColumns;
        return flowing({rows, kColumns}, std::vector<float>(from, from + rows * kColumns));
    };
    const auto add_up = [&] {
        auto total = device().values_of<double>(parts[0].sums);
        const auto second = device().values_of<double>(parts[1].sums);
        for (std::size_t i = 0; i < total.size(); ++i) total[i] += second[i];
        for (const Part& part : parts) device().upload(total.data(), part.sums);
    };
    for (const auto& [first, rows] :
         {std::pair{std::int64_t{0}, kFirst}, std::pair{kFirst, kRows - kFirst}}) {
        parts.push_back({rows_of(x, first, rows), rows_of(dy, first, rows), statistics(),
                         floats({2, kChannels}), flowing({rows, kColumns}), flowing({rows, kColumns}),
                         device().make(Type::f64, {2, kChannels}), floats({kChannels}), floats({kChannels})});
        device().batch_norm_sums(norm, parts.back().x, parts.back().sums);
    }
    add_up();
    for (const Part& part : parts)
        device().batch_norm(norm, part.x, part.sums, kRows, tw, tb, part.running, part.saved, part.y);
    for (const Part& part : parts)
        device().batch_norm_backward_sums(norm, part.x, part.y, part.saved, part.dy, part.dx, part.sums,
                                          part.dw, part.db);
    add_up();
    for (const Part& part : parts)
        device().batch_norm_backward(norm, part.x, tw, part.saved, part.sums, kRows, part.dx);

    const auto joined = [&](const Tensor& first, const Tensor& second) {
        auto all = widened(values(first));
        for (const float value : values(second)) all.push_back(static_cast<double>(value));
        return all;
    };
    const auto added = [&](const Tensor& first, const Tensor& second) {
        auto all = widened(values(first));
        const auto more = values(second);
        for (std::size_t i = 0; i < all.size(); ++i) all[i] += static_cast<double>(more[i]);
        return all;
    };
    expect_tensor(y, joined(parts[0].y, parts[1].y), kTolerance, "y");
    expect_tensor(dx, joined(parts[0].dx, parts[1].dx), kTolerance, "dx");
    expect_close(values(dw), added(parts[0].dw, parts[1].dw), 1e-4, "dw");
    expect_close(values(db), added(parts[0].db, parts[1].db), 1e-4, "db");
    for (const Part& part : parts) {
        expect_close(values(part.running), widened(values(running)), 1e-6, "running statistics");
        expect_close(values(part.saved), widened(values(saved)), 1e-6, "statistics of the batch");
    }
}

// A step that is skipped must not be all that the tests ever see.
TEST_P(ImageOperationsTest, RunningStatisticsDoNotFollowABatchThatIsNoNumber) {
    const BatchNorm norm{{2, 1, 2}, false};
    const float no_number = std::numeric_limits<float>::quiet_NaN();
    const Tensor running = floats({2, 2}, {0.5f, 0.25f, 2, 3}), saved = floats({2, 2}), y = flowing({1, 4});
    norm_forward(norm, flowing({1, 4}, {1, no_number, 1, 3}), floats({2}, {1, 1}), floats({2}, {0, 0}),
                 running, saved, y);
    EXPECT_TRUE(std::isnan(values(y)[0]));
    const auto after = values(running);
    EXPECT_EQ(after[0], 0.5f);
    EXPECT_EQ(after[2], 2);
    EXPECT_FLOAT_EQ(after[1], 0.9f * 0.25f + 0.1f * 2);
    EXPECT_FLOAT_EQ(after[3], 0.9f * 3 + 0.1f * 2);
}

TEST_P(ImageOperationsTest, NaNGoesThroughTheReluOfBatchNorm) {
    const BatchNorm norm{{1, 1, 4}, true};
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Tensor running = floats({2, 1}, {0, 1}), saved = floats({2, 1}), y = flowing({1, 4});
    device().batch_norm_inference(norm, flowing({1, 4}, {-1, nan, 1, 2}), floats({1}, {1}), floats({1}, {0}),
                                  running, y);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(values(y)[i]), i == 1) << i;
    norm_forward(norm, flowing({1, 4}, {-1, nan, 1, 2}), floats({1}, {1}), floats({1}, {0}), running, saved,
                 y);
    for (const float value : values(y)) EXPECT_TRUE(std::isnan(value));
}

TEST_P(ImageOperationsTest, BatchNormItsGradientsAndItsRunningStatistics) {
    constexpr std::int64_t kRows = 3, kPlane = 4 * 5;
    for (const bool relu : {false, true}) {
        for (const std::int64_t channels : {1, 6}) {
            const BatchNorm norm{{channels, 4, 5}, relu};
            const std::int64_t count = kRows * channels * kPlane;
            const auto x = numbers(count, 1, -2, 3), w = random_values(channels, 2, 0.5f, 2),
                       b = random_values(channels, 3), dy = numbers(count, 4);
            const auto before = random_values(2 * channels, 5, 0.5f, 1.5f);
            const Tensor tx = flowing({kRows, channels * kPlane}, x), tw = floats({channels}, w);
            const Tensor tb = floats({channels}, b), running = floats({2, channels}, before);
            const Tensor saved = floats({2, channels}), y = flowing({kRows, channels * kPlane});
            norm_forward(norm, tx, tw, tb, running, saved, y);
            const auto reference = [&](const auto& at, const auto& weights, const auto& biases) {
                return batch_norm(at, weights, biases, kRows, kPlane, relu);
            };
            const Normed expected = reference(widened(x), widened(w), widened(b));
            expect_tensor(y, expected.y, kTolerance, "batch norm");
            std::vector<double> statistics;
            for (std::size_t i = 0; i < before.size(); ++i) {
                const auto c = static_cast<std::size_t>(channels);
                const double now = i < c ? expected.means[i] : expected.variances[i - c];
                statistics.push_back(0.9 * static_cast<double>(before[i]) + 0.1 * now);
            }
            expect_close(values(running), statistics, kTolerance, "running statistics");

            const Tensor dx = flowing({kRows, channels * kPlane}, dy), dw = floats({channels}),
                         db = floats({channels});
            norm_backward(norm, tx, y, tw, saved, dx, dx, dw, db);
            const auto loss = [&](const auto& at, const auto& weights, const auto& biases) {
                return weighted_sum(reference(at, weights, biases).y, dy);
            };
            expect_slopes([&](const auto& at) { return loss(at, widened(w), widened(b)); }, x, values(dx),
                          "x", slope_tolerance(type()));
            expect_slopes([&](const auto& at) { return loss(widened(x), at, widened(b)); }, w, values(dw),
                          "w");
            expect_slopes([&](const auto& at) { return loss(widened(x), widened(w), at); }, b, values(db),
                          "b");

            device().batch_norm_inference(norm, tx, tw, tb, running, y);
            std::vector<double> inferred;
            for (std::size_t i = 0; i < x.size(); ++i) {
                const std::size_t c = i / kPlane % static_cast<std::size_t>(channels);
                const double mean = statistics[c],
                             variance = statistics[static_cast<std::size_t>(channels) + c];
                const double value = (static_cast<double>(x[i]) - mean) / std::sqrt(variance + 1e-5) *
                                         static_cast<double>(w[c]) +
                                     static_cast<double>(b[c]);
                inferred.push_back(relu ? std::max(value, 0.0) : value);
            }
            expect_tensor(y, inferred, kTolerance, "with running statistics");
        }
    }
}

// y[o, 2i + a, 2j + b] = Σ channels x[c, i, j] w[c, o, a, b]: nn.ConvTranspose2d(c, o, 2,
// stride=2) of PyTorch.
std::vector<double> doubled(const std::vector<double>& x, const std::vector<double>& w, ImageShape in,
                            std::int64_t outputs, std::int64_t rows) {
    const std::int64_t width = 2 * in.width, plane = 4 * in.height * in.width;
    std::vector<double> y(static_cast<std::size_t>(rows * outputs * plane));
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < in.channels; ++c)
            for (std::int64_t o = 0; o < outputs; ++o)
                for (std::int64_t i = 0; i < in.height; ++i)
                    for (std::int64_t j = 0; j < in.width; ++j)
                        for (std::int64_t k = 0; k < 4; ++k)
                            y[static_cast<std::size_t>((r * outputs + o) * plane + (2 * i + k / 2) * width +
                                                       2 * j + k % 2)] +=
                                x[static_cast<std::size_t>(
                                    ((r * in.channels + c) * in.height + i) * in.width + j)] *
                                w[static_cast<std::size_t>((c * outputs + o) * 4 + k)];
    return y;
}

TEST_P(ImageOperationsTest, AConvolutionOfStrideTwoBackwardsIsATransposedOne) {
    constexpr std::int64_t kRows = 2, kOutputs = 3;
    const ImageShape in{4, 5, 6};
    const Convolution adjoint{{kOutputs, 10, 12}, in.channels, 2, 0, 2};
    ASSERT_EQ(adjoint.y(), in);
    const auto x = numbers(kRows * in.numbers(), 6), w = numbers(in.channels * kOutputs * 4, 7);
    const auto dy = numbers(kRows * adjoint.x.numbers(), 8);
    const Tensor tx = flowing({kRows, in.numbers()}, x), tdy = flowing({kRows, adjoint.x.numbers()}, dy);
    const Tensor tw = flowing({in.channels, kOutputs, 2, 2}, w);
    const Tensor y = flowing({kRows, adjoint.x.numbers()}), dx = flowing({kRows, in.numbers()}),
                 dw = floats(tw.shape());
    device().convolve_backward_input(adjoint, tx, tw, y);
    expect_tensor(y, doubled(widened(x), widened(w), in, kOutputs, kRows), kTolerance, "transposed");
    device().convolve(adjoint, tdy, tw, {}, Activation::none, dx);
    device().convolve_backward_parameters(adjoint, tx, tdy, dw, {});
    expect_slopes(
        [&](const auto& at) { return weighted_sum(doubled(at, widened(w), in, kOutputs, kRows), dy); }, x,
        values(dx), "x", slope_tolerance(type()));
    expect_slopes(
        [&](const auto& at) { return weighted_sum(doubled(widened(x), at, in, kOutputs, kRows), dy); }, w,
        values(dw), "w", slope_tolerance(type()));
}

TEST_P(ImageOperationsTest, ChannelsAreAddedToAndSummed) {
    constexpr std::int64_t kRows = 3;
    const ImageShape shape{2, 3, 4};
    const auto y = numbers(kRows * shape.numbers(), 9), b = numbers(shape.channels, 10);
    const Tensor ty = flowing({kRows, shape.numbers()}, y), db = floats({shape.channels});
    device().sum_channels(shape, ty, db);
    device().add_channels(shape, flowing({shape.channels}, b), ty);
    std::vector<double> sums(2, 0.0), added;
    for (std::size_t i = 0; i < y.size(); ++i) {
        sums[i / 12 % 2] += static_cast<double>(y[i]);
        added.push_back(static_cast<double>(y[i]) + static_cast<double>(b[i / 12 % 2]));
    }
    expect_tensor(db, sums, kTolerance, "sums");
    expect_tensor(ty, added, kTolerance, "added");
}

std::vector<double> dice(const std::vector<double>& logits, const std::vector<float>& target,
                         std::size_t columns) {
    std::vector<double> losses;
    for (std::size_t first = 0; first < logits.size(); first += columns) {
        double both = 0, sides = 0;
        for (std::size_t i = first; i < first + columns; ++i) {
            const double p = 1 / (1 + std::exp(-logits[i]));
            both += p * static_cast<double>(target[i]);
            sides += p + static_cast<double>(target[i]);
        }
        losses.push_back(1 - (2 * both + 1) / (sides + 1));
    }
    return losses;
}

TEST_P(ImageOperationsTest, DiceOfEachImageAndItsGradient) {
    constexpr std::int64_t kRows = 3, kColumns = 500;
    const auto logits = numbers(kRows * kColumns, 11, -4, 4);
    auto target = random_values(kRows * kColumns, 12);
    double right = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
        target[i] = i < kColumns || target[i] > 0.4f ? 0.0f : 1.0f;  // the first image has no mask at all
        right += ((logits[i] > 0) == (target[i] > 0.5f) ? 1.0 : 0.0) / kColumns;
    }
    const Tensor in = flowing({kRows, kColumns}, logits), metrics = device().make(Type::f64, {2});
    device().sigmoid_dice(in, floats({kRows, kColumns}, target), 0.5f, metrics, in);
    const auto loss = [&](const auto& at) {
        double sum = 0;
        for (double one : dice(at, target, kColumns)) sum += one;
        return sum;
    };
    const auto told = device().values_of<double>(metrics);
    EXPECT_NEAR(told[0], loss(widened(logits)), 1e-5);
    EXPECT_NEAR(told[1], right, 1e-9);
    expect_slopes([&](const auto& at) { return 0.5 * loss(at); }, logits, values(in), "logits",
                  slope_tolerance(type()));
}

TEST_P(ImageOperationsTest, ColumnsAreCopiedOrAdded) {
    const auto from = numbers(3 * 10, 13), to = numbers(3 * 7, 14);
    for (const Write write : {Write::set, Write::add}) {
        const Tensor out = flowing({3, 7}, to);
        device().copy_columns(flowing({3, 10}, from), 4, out, 2, 5, write);
        auto expected = widened(to);
        for (std::size_t r = 0; r < 3; ++r)
            for (std::size_t c = 0; c < 5; ++c) {
                const auto in = static_cast<double>(from[r * 10 + 4 + c]);
                double& place = expected[r * 7 + 2 + c];
                place = write == Write::add ? place + in : in;
            }
        expect_tensor(out, expected, kTolerance, "columns");
    }
}

INSTANTIATE_ON_EACH_DEVICE_IN_EACH_PRECISION(ImageOperationsTest);

}  // namespace
}  // namespace dp::trainer
